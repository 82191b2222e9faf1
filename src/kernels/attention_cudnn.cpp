// SPDX-License-Identifier: Apache-2.0
//
// Which attention goes to cuDNN, sequence by sequence.
//
// Legend: as attention.hpp.
#include "attention_cudnn.hpp"

#if defined(PLEAT_CUDNN_ATTENTION)

#include <atomic>
#include <cstdint>
#include <optional>
#include <string>

#include <fmt/format.h>
#include <Kokkos_Profiling_ScopedRegion.hpp>

#include "attention_engine.hpp"
#include "by_stream.hpp"
#include "pleat/base/environment.hpp"

namespace pleat::kernels {
namespace {

/// Rows of cuDNN's tiles. Sequences that end within a tile are left to the products: several
/// versions of cuDNN had gradients of such tails wrong on Hopper.
constexpr std::int64_t kTile = 128;
/// Loads of a row are as wide.
constexpr std::int64_t kAlignment = 16;

bool is_taken(const AttentionShape& shape) {
  return shape.batch > 0 && shape.queries > 0 && shape.queries % kTile == 0 &&
         shape.queries == shape.keys && shape.diagonal == 0 && shape.head_dim % 8 == 0 &&
         shape.head_dim <= 128;
}

template <class View>
bool is_aligned(const View& rows, std::int64_t column = 0) {
  const auto bytes = static_cast<std::int64_t>(sizeof(Bf16));
  return (reinterpret_cast<std::uintptr_t>(rows.data() + column) % kAlignment == 0) &&
         static_cast<std::int64_t>(rows.stride(0)) * bytes % kAlignment == 0;
}

template <class View>
bool are_aligned(const AttentionShape& shape, const View& kv_UR) {
  return is_aligned(kv_UR, shape.k_column) && is_aligned(kv_UR, shape.v_column);
}

/// Where row `row` begins; cuDNN's arrays have no const.
template <class View>
void* row_of(const View& rows, std::int64_t row, std::int64_t column = 0) {
  auto* const first = rows.data() + row * static_cast<std::int64_t>(rows.stride(0)) + column;
  return const_cast<void*>(static_cast<const void*>(first));
}

template <class View>
void* statistic_of(const View& values_HT, std::int64_t row) {
  return const_cast<void*>(static_cast<const void*>(values_HT.data() + row));
}

template <class View>
std::int64_t stride_of(const View& rows) {
  return static_cast<std::int64_t>(rows.stride(0));
}

/// Whether the products form all attention, as the environment wishes or a test.
std::atomic<bool>& by_products() {
  static std::atomic<bool> value = is_wished("PLEAT_ATTENTION", "products");
  return value;
}

/// For Kokkos Tools, as the products' (gemm_cublaslt.cpp).
std::string region_name(const AttentionShape& shape, bool backward) {
  const double product = static_cast<double>(shape.batch * shape.heads * shape.head_dim) *
                         static_cast<double>(shape.queries) *
                         static_cast<double>(shape.queries + 1);
  return fmt::format("pleat::kernels::attention cuDNN {}, {}/{} heads of {} flop={:.0f}",
                     backward ? "backward" : "forward", shape.heads, shape.kv_heads,
                     shape.head_dim, (backward ? 5.0 : 2.0) * product);
}

/// Runs the graph of one sequence for each of them. \param arrays_of  (query row, key row)
template <class ArraysOf>
bool run_sequences(const ExecSpace& exec, const AttentionShape& shape,
                   const GraphShape& one, const ArraysOf& arrays_of) {
  if (by_products()) return false;
  AttentionEngine& engine = object_by_stream<AttentionEngine>(exec);
  const AttentionGraph* const graph = engine.graph(exec, one);
  if (graph == nullptr) return false;
  std::optional<Kokkos::Profiling::ScopedRegion> region;
  if (Kokkos::Profiling::profileLibraryLoaded()) {
    region.emplace(region_name(shape, one.backward));
  }
  for (std::int64_t b = 0; b < shape.batch; ++b) {
    engine.run(exec, one, *graph,
               arrays_of(shape.first_query + b * shape.query_stride,
                         shape.first_key + b * shape.key_stride));
  }
  return true;
}

GraphShape forward_shape(const AttentionShape& shape, float scale,
                         const DeviceView<const Bf16, 2>& q_TQ,
                         const DeviceView<const Bf16, 2>& kv_UR,
                         const DeviceView<const Bf16, 2>& o_TO,
                         const DeviceView<const float, 2>& lse_HT) {
  return {.sequence = shape.queries,
          .heads = shape.heads,
          .kv_heads = shape.kv_heads,
          .head_dim = shape.head_dim,
          .q_stride = stride_of(q_TQ),
          .kv_stride = stride_of(kv_UR),
          .o_stride = stride_of(o_TO),
          .lse_stride = stride_of(lse_HT),
          .scale = scale};
}

/// Of the sequence whose queries begin at row t and keys at row u.
GraphArrays forward_arrays(const AttentionShape& shape, std::int64_t t, std::int64_t u,
                           const DeviceView<const Bf16, 2>& q_TQ,
                           const DeviceView<const Bf16, 2>& kv_UR,
                           const DeviceView<const Bf16, 2>& o_TO,
                           const DeviceView<const float, 2>& lse_HT) {
  return {.q = row_of(q_TQ, t),
          .k = row_of(kv_UR, u, shape.k_column),
          .v = row_of(kv_UR, u, shape.v_column),
          .o = row_of(o_TO, t),
          .lse = statistic_of(lse_HT, t)};
}

}  // namespace

bool cudnn_attention_forward(const ExecSpace& exec, const AttentionShape& shape,
                             float scale, const DeviceView<const Bf16, 2>& q_TQ,
                             const DeviceView<const Bf16, 2>& kv_UR,
                             const DeviceView<Bf16, 2>& o_TO,
                             const DeviceView<float, 2>& lse_HT) {
  if (!is_taken(shape) || !is_aligned(q_TQ) || !are_aligned(shape, kv_UR) ||
      !is_aligned(o_TO)) {
    return false;
  }
  const GraphShape one = forward_shape(shape, scale, q_TQ, kv_UR, o_TO, lse_HT);
  return run_sequences(exec, shape, one, [&](std::int64_t t, std::int64_t u) {
    return forward_arrays(shape, t, u, q_TQ, kv_UR, o_TO, lse_HT);
  });
}

bool cudnn_attention_backward(const ExecSpace& exec, const AttentionShape& shape,
                              float scale, const DeviceView<const Bf16, 2>& q_TQ,
                              const DeviceView<const Bf16, 2>& kv_UR,
                              const DeviceView<const Bf16, 2>& o_TO,
                              const DeviceView<const float, 2>& lse_HT,
                              const DeviceView<const Bf16, 2>& do_TO,
                              const DeviceView<Bf16, 2>& dq_TQ,
                              const DeviceView<Bf16, 2>& dkv_UR) {
  if (!is_taken(shape) || !is_aligned(q_TQ) || !are_aligned(shape, kv_UR) ||
      !is_aligned(o_TO) || !is_aligned(do_TO) || !is_aligned(dq_TQ) ||
      !are_aligned(shape, dkv_UR)) {
    return false;
  }
  GraphShape one = forward_shape(shape, scale, q_TQ, kv_UR, o_TO, lse_HT);
  one.backward = true;
  one.do_stride = stride_of(do_TO);
  one.dq_stride = stride_of(dq_TQ);
  one.dkv_stride = stride_of(dkv_UR);
  return run_sequences(exec, shape, one, [&](std::int64_t t, std::int64_t u) {
    GraphArrays arrays = forward_arrays(shape, t, u, q_TQ, kv_UR, o_TO, lse_HT);
    arrays.d_o = row_of(do_TO, t);
    arrays.dq = row_of(dq_TQ, t);
    arrays.dk = row_of(dkv_UR, u, shape.k_column);
    arrays.dv = row_of(dkv_UR, u, shape.v_column);
    return arrays;
  });
}

bool is_attention_by_products() { return by_products(); }

void set_attention_by_products(bool value) { by_products() = value; }

}  // namespace pleat::kernels

#endif
