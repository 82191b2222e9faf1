// SPDX-License-Identifier: Apache-2.0
// Does cuDNN take attention as Pleat lays it out? The library itself judges the program's graphs
// for a described GPU (Hopper) on a machine without one: operations, engines, what those support.
// No number is formed; only a GPU shows those (docs/adr/0019).
#include "attention_graphs.hpp"

#include <ostream>
#include <string>

#include <dlfcn.h>
#include <gmock/gmock.h>

namespace pleat::test {
namespace {

using kernels::GraphShape;

/// An H100 with 132 multiprocessors, in the words of cuDNN's DEVICEPROP descriptor.
constexpr const char* kHopper = R"({
  "deviceName": "H100", "deviceVer": 900, "driverVer": 13000, "cudaDeviceId": 0,
  "pciDeviceId": 0, "isTccDriver": 0, "supportCoopLaunch": 1, "smCountOrigin": 0,
  "multiProcessorCount": 132, "warpSize": 32, "regsPerBlock": 65536,
  "maxGridSize": [2147483647, 65535, 65535], "maxBlockSize": [1024, 1024, 64],
  "maxSharedMemoryPerBlock": 49152, "maxSharedMemoryPerBlockOptin": 232448,
  "reservedSharedMemoryPerBlock": 1024, "oversizedSharedMemoryPerBlock": 0,
  "maxRegistersPerSM": 65536, "maxCtasPerSM": 32, "maxThreadsPerBlock": 1024,
  "maxThreadsPerSM": 2048, "totalGlobalMem": 85017493504, "smClockRateKHz": 1980000,
  "memClockRateKHz": 2619000, "memoryBusWidth": 5120, "l2CacheSize": 52428800})";

struct Heads {
  std::int64_t sequence, heads, kv_heads, head_dim;
};

std::ostream& operator<<(std::ostream& out, const Heads& x) {
  return out << x.sequence << " tokens, heads " << x.heads << "/" << x.kv_heads << " of "
             << x.head_dim;
}

/// Rows as in the model: queries, keys and values of a token side by side.
GraphShape graph(const Heads& x, bool backward, std::int64_t lse_stride) {
  const std::int64_t row = (x.heads + 2 * x.kv_heads) * x.head_dim;
  const std::int64_t o_row = x.heads * x.head_dim;
  return {.backward = backward,
          .sequence = x.sequence,
          .heads = x.heads,
          .kv_heads = x.kv_heads,
          .head_dim = x.head_dim,
          .q_stride = row,
          .kv_stride = row,
          .o_stride = o_row,
          .lse_stride = lse_stride,
          .do_stride = backward ? o_row : 0,
          .dq_stride = backward ? row : 0,
          .dkv_stride = backward ? row : 0,
          .scale = 0.125F};
}

std::string refusal(const Heads& x, bool backward, std::int64_t lse_stride) {
  return kernels::refusal_without_device(graph(x, backward, lse_stride), kHopper, 90);
}

class AttentionGraphs : public testing::Test {
 protected:
  void SetUp() override {
    // The toolkit's stand-in for the driver answers for the driver where there is none.
    if (dlopen("libcuda.so.1", RTLD_NOW | RTLD_GLOBAL) == nullptr) {
      (void)dlopen(PLEAT_CUDA_DRIVER_STUB, RTLD_NOW | RTLD_GLOBAL);
    }
    if (kernels::attention_graph_library().empty()) GTEST_SKIP() << "libcudnn.so.9 is not here";
  }
};

TEST_F(AttentionGraphs, HeadsOfModelsAreTaken) {
  // Mixtral-8x22B, Qwen2-57B-A14B, those of decks in inputs/, and what the check asks for.
  for (const Heads& x : {Heads{4096, 48, 8, 128}, Heads{4096, 28, 4, 128},
                         Heads{1024, 16, 16, 64}, Heads{128, 8, 2, 32}, Heads{256, 6, 2, 40}}) {
    EXPECT_EQ(refusal(x, false, x.sequence), "") << "forward, " << x;
    EXPECT_EQ(refusal(x, false, 2 * x.sequence), "") << "forward, two sequences, " << x;
    EXPECT_EQ(refusal(x, true, x.sequence), "") << "backward, " << x;
  }
}

TEST_F(AttentionGraphs, OddHeadsAreRefused) {
  EXPECT_NE(refusal({128, 4, 2, 12}, false, 128), "");
}

}  // namespace
}  // namespace pleat::test
