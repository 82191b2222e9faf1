// SPDX-License-Identifier: Apache-2.0
#include "gemm_cublaslt.hpp"

#if defined(PLEAT_CUBLASLT_GEMM)

#include <algorithm>
#include <array>
#include <bit>
#include <compare>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <type_traits>
#include <vector>

#include <cublasLt.h>
#include <Kokkos_Profiling_ScopedRegion.hpp>

#include "gemm_portable.hpp"
#include "pleat/base/gpu_stream.hpp"

namespace pleat::kernels {
namespace {

/// What cuBLAS itself sets aside on Hopper.
constexpr std::size_t kWorkspaceBytes = std::size_t{32} << 20;
/// Products that run side by side: those of a few experts fill a GPU, one alone may not.
constexpr std::size_t kLanes = 4;

void check_blas(cublasStatus_t status, const char* call) {
  PLEAT_REQUIRE(status == CUBLAS_STATUS_SUCCESS, InternalError, "PL0813", "{} failed: {}",
                call, cublasLtGetStatusString(status));
}

template <class T>
constexpr cudaDataType_t data_type() {
  if constexpr (std::is_same_v<T, double>) {
    return CUDA_R_64F;
  } else if constexpr (std::is_same_v<T, float>) {
    return CUDA_R_32F;
  } else {
    return CUDA_R_16BF;
  }
}

/// The largest power of two up to 16, the widest load, that divides an address and the distance, in bytes,
/// to the next matrix.
std::uint32_t alignment_of(const void* address, std::size_t distance) {
  constexpr std::uintptr_t kMost = 16;
  const auto bits = reinterpret_cast<std::uintptr_t>(address) | distance | kMost;
  return static_cast<std::uint32_t>(bits & (~bits + 1));
}

/// All that the choice of an algorithm depends on.
struct Shape {
  cudaDataType_t in, out;
  bool transpose_a, transpose_b;
  std::int64_t m, n, k;
  std::int64_t a_stride, b_stride, c_stride;
  std::int64_t count;
  std::int64_t a_step, b_step, c_step;
  std::uint32_t a_alignment, b_alignment, c_alignment;
  auto operator<=>(const Shape&) const = default;
};

template <class T, class C>
Shape shape_of(const ProductBatch<T, C>& batch) {
  const auto& x = batch.first;
  const auto bytes = [](std::int64_t step, std::size_t size) {
    return static_cast<std::size_t>(step) * size;
  };
  return {.in = data_type<T>(),
          .out = data_type<C>(),
          .transpose_a = x.transpose_a == Transpose::kYes,
          .transpose_b = x.transpose_b == Transpose::kYes,
          .m = x.m,
          .n = x.n,
          .k = x.k,
          .a_stride = x.a_stride,
          .b_stride = x.b_stride,
          .c_stride = x.c_stride,
          .count = batch.count,
          .a_step = batch.a_step,
          .b_step = batch.b_step,
          .c_step = batch.c_step,
          .a_alignment = alignment_of(x.a, bytes(batch.a_step, sizeof(T))),
          .b_alignment = alignment_of(x.b, bytes(batch.b_step, sizeof(T))),
          .c_alignment = alignment_of(x.c, bytes(batch.c_step, sizeof(C)))};
}

/// Rounded up to a number of four binary digits and zeros.
std::int64_t rounded_up(std::int64_t extent) {
  const int digits = std::bit_width(static_cast<std::uint64_t>(extent));
  if (digits <= 4) return extent;
  const std::int64_t unit = std::int64_t{1} << (digits - 4);
  return (extent + unit - 1) / unit * unit;
}

/// One shape for many: the number of rows of an expert changes with every micro-batch,
/// and to ask for an algorithm takes longer than a small product. No stride bounds the
/// extent that is rounded: the rows of a, or what a^T b sums over.
Shape nearby(Shape shape) {
  if (!shape.transpose_a) {
    shape.m = rounded_up(shape.m);
  } else if (!shape.transpose_b) {
    shape.k = rounded_up(shape.k);
  }
  return shape;
}

/// A row-major matrix is its transpose in BLAS's column-major eyes: c^T = op(b)^T
/// op(a)^T.
class Operation {
 public:
  explicit Operation(const Shape& x) {
    const bool is_fp64 = x.in == CUDA_R_64F;
    check_blas(cublasLtMatmulDescInit(&operation,
                                      is_fp64 ? CUBLAS_COMPUTE_64F : CUBLAS_COMPUTE_32F,
                                      is_fp64 ? CUDA_R_64F : CUDA_R_32F),
               "cublasLtMatmulDescInit");
    set_transpose(CUBLASLT_MATMUL_DESC_TRANSA, x.transpose_b);
    set_transpose(CUBLASLT_MATMUL_DESC_TRANSB, x.transpose_a);
    set_layout(left, x.in, x.transpose_b ? x.k : x.n, x.transpose_b ? x.n : x.k,
               x.b_stride);
    set_layout(right, x.in, x.transpose_a ? x.m : x.k, x.transpose_a ? x.k : x.m,
               x.a_stride);
    set_layout(result, x.out, x.n, x.m, x.c_stride);
    if (x.count == 1) return;
    set_batch(left, x.count, x.b_step);
    set_batch(right, x.count, x.a_step);
    set_batch(result, x.count, x.c_step);
  }

  cublasLtMatmulDescOpaque_t operation{};
  cublasLtMatrixLayoutOpaque_t left{}, right{}, result{};

 private:
  void set_transpose(cublasLtMatmulDescAttributes_t which, bool transpose) {
    const cublasOperation_t value = transpose ? CUBLAS_OP_T : CUBLAS_OP_N;
    check_blas(cublasLtMatmulDescSetAttribute(&operation, which, &value, sizeof(value)),
               "cublasLtMatmulDescSetAttribute");
  }
  static void set_layout(cublasLtMatrixLayoutOpaque_t& layout, cudaDataType_t type,
                         std::int64_t rows, std::int64_t columns, std::int64_t stride) {
    check_blas(cublasLtMatrixLayoutInit(&layout, type, static_cast<std::uint64_t>(rows),
                                        static_cast<std::uint64_t>(columns), stride),
               "cublasLtMatrixLayoutInit");
  }
  static void set_batch(cublasLtMatrixLayoutOpaque_t& layout, std::int64_t count,
                        std::int64_t step) {
    const auto set = [&](cublasLtMatrixLayoutAttribute_t which, auto value) {
      check_blas(cublasLtMatrixLayoutSetAttribute(&layout, which, &value, sizeof(value)),
                 "cublasLtMatrixLayoutSetAttribute");
    };
    set(CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT, static_cast<std::int32_t>(count));
    set(CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET, step);
  }
};

class Handle {
 public:
  Handle() { check_blas(cublasLtCreate(&handle_), "cublasLtCreate"); }
  ~Handle() { (void)cublasLtDestroy(handle_); }
  Handle(const Handle&) = delete;
  Handle& operator=(const Handle&) = delete;
  cublasLtHandle_t get() const { return handle_; }

 private:
  cublasLtHandle_t handle_ = nullptr;
};

using Algorithm = std::optional<cublasLtMatmulAlgo_t>;

/// The library's choice among what sums in a fixed order and rounds once.
Algorithm ask_for_algorithm(const Handle& handle, const Shape& shape) {
  cublasLtMatmulPreferenceOpaque_t preference{};
  check_blas(cublasLtMatmulPreferenceInit(&preference), "cublasLtMatmulPreferenceInit");
  const auto prefer = [&](cublasLtMatmulPreferenceAttributes_t which, auto value) {
    check_blas(
        cublasLtMatmulPreferenceSetAttribute(&preference, which, &value, sizeof(value)),
        "cublasLtMatmulPreferenceSetAttribute");
  };
  prefer(CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, std::uint64_t{kWorkspaceBytes});
  prefer(CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK,
         std::uint32_t{CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE});
  prefer(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, shape.b_alignment);
  prefer(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, shape.a_alignment);
  prefer(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, shape.c_alignment);
  prefer(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, shape.c_alignment);
  Operation x(shape);
  cublasLtMatmulHeuristicResult_t found{};
  int count = 0;
  const cublasStatus_t status = cublasLtMatmulAlgoGetHeuristic(
      handle.get(), &x.operation, &x.left, &x.right, &x.result, &x.result, &preference, 1,
      &found, &count);
  if (status == CUBLAS_STATUS_NOT_SUPPORTED) return {};
  check_blas(status, "cublasLtMatmulAlgoGetHeuristic");
  if (count == 0 || found.state != CUBLAS_STATUS_SUCCESS) return {};
  return found.algo;
}

/// A stream with memory for intermediate sums. The first lane is the stream of the
/// execution space itself.
struct Lane {
  std::optional<gpu::Stream> own;
  gpu::StreamHandle stream = nullptr;
  gpu::Event done;
  DeviceView<std::byte, 1> workspace;
};

/// \brief What the products of one execution space share.
class Engine {
 public:
  explicit Engine(const ExecSpace& exec) {
    for (Lane& lane : lanes_) {
      if (&lane != &lanes_.front()) lane.own.emplace();
      lane.stream = lane.own ? lane.own->get() : gpu::stream_of(exec);
    }
  }

  template <class T, class C>
  void multiply(const ExecSpace& exec, std::span<const MatrixProduct<T, T, C>> products);
  template <class T, class C>
  void multiply(const ExecSpace& exec, const ProductBatch<T, C>& batch) {
    launch<T, C>(exec, batch, lanes_.front());
  }

 private:
  const Algorithm& algorithm(const Shape& shape);
  const Algorithm& usable_algorithm(const Shape& shape, Operation& operation);
  template <class T, class C>
  void launch(const ExecSpace& exec, const ProductBatch<T, C>& batch, Lane& lane);
  void fork();
  void join();

  Handle handle_;
  std::array<Lane, kLanes> lanes_;
  gpu::Event begin_;
  std::map<Shape, Algorithm> algorithms_;
};

const Algorithm& Engine::algorithm(const Shape& shape) {
  const auto known = algorithms_.find(shape);
  if (known != algorithms_.end()) return known->second;
  return algorithms_.emplace(shape, ask_for_algorithm(handle_, shape)).first->second;
}

/// That of the nearby shape, unless it does not do for this one.
const Algorithm& Engine::usable_algorithm(const Shape& shape, Operation& x) {
  const Shape near = nearby(shape);
  const Algorithm& wanted = algorithm(near);
  if (near == shape) return wanted;
  cublasLtMatmulHeuristicResult_t result{};
  if (wanted &&
      cublasLtMatmulAlgoCheck(handle_.get(), &x.operation, &x.left, &x.right, &x.result,
                              &x.result, &*wanted, &result) == CUBLAS_STATUS_SUCCESS &&
      result.workspaceSize <= kWorkspaceBytes) {
    return wanted;
  }
  return algorithm(shape);
}

/// Libraries disagree about products over nothing; here c is scaled by beta.
template <class T, class C>
void multiply_portably(const ExecSpace& exec, const ProductBatch<T, C>& batch) {
  MatrixProduct<T, T, C> product = batch.first;
  for (std::int64_t i = 0; i < batch.count; ++i) {
    portable_product<T, C>(exec, product);
    product.a += batch.a_step;
    product.b += batch.b_step;
    product.c += batch.c_step;
  }
}

template <class T, class C>
void Engine::launch(const ExecSpace& exec, const ProductBatch<T, C>& batch, Lane& lane) {
  const MatrixProduct<T, T, C>& product = batch.first;
  if (product.m == 0 || product.n == 0 || batch.count == 0) return;
  if (product.k == 0) return multiply_portably<T, C>(exec, batch);
  const Shape shape = shape_of<T, C>(batch);
  Operation x(shape);
  const Algorithm& chosen = usable_algorithm(shape, x);
  if (!chosen) return multiply_portably<T, C>(exec, batch);
  if (lane.workspace.size() == 0) {
    lane.workspace = DeviceView<std::byte, 1>(
        Kokkos::view_alloc(Kokkos::WithoutInitializing, "pleat::kernels::gemm"),
        kWorkspaceBytes);
  }
  check_blas(cublasLtMatmul(handle_.get(), &x.operation, &product.alpha, product.b,
                            &x.left, product.a, &x.right, &product.beta, product.c,
                            &x.result, product.c, &x.result, &*chosen,
                            lane.workspace.data(), kWorkspaceBytes, lane.stream),
             "cublasLtMatmul");
}

void Engine::fork() {
  begin_.record(lanes_.front().stream);
  for (Lane& lane : lanes_) {
    if (lane.own) begin_.hold_back(lane.stream);
  }
}

void Engine::join() {
  for (Lane& lane : lanes_) {
    if (!lane.own) continue;
    lane.done.record(lane.stream);
    lane.done.hold_back(lanes_.front().stream);
  }
}

/// Each product goes to the lane with the least work so far.
template <class T, class C>
void Engine::multiply(const ExecSpace& exec,
                      std::span<const MatrixProduct<T, T, C>> products) {
  const auto is_one = [](const auto& x) { return x.m > 0 && x.n > 0; };
  const bool many = std::count_if(products.begin(), products.end(), is_one) > 1;
  std::array<std::int64_t, kLanes> work{};
  if (many) fork();
  for (const auto& product : products) {
    if (!is_one(product)) continue;
    const auto least = many ? std::min_element(work.begin(), work.end()) : work.begin();
    *least += product.m * product.n * std::max<std::int64_t>(product.k, 1);
    launch<T, C>(exec, {.first = product},
                 lanes_[static_cast<std::size_t>(least - work.begin())]);
  }
  if (many) join();
}

/// For Kokkos Tools, which see kernels of Kokkos only: "pleat::kernels::gemm NT bf16 ->
/// bf16 1024 x 512, 8 of them flop=N". The number of rows, which changes from call to
/// call, is left out, so that a tool adds up what belongs together.
template <class T, class C>
std::string region_name(const MatrixProduct<T, T, C>& x, std::int64_t count,
                        double flop) {
  const auto type = [](cudaDataType_t value) {
    return value == CUDA_R_64F ? "fp64" : value == CUDA_R_32F ? "fp32" : "bf16";
  };
  const bool ta = x.transpose_a == Transpose::kYes;
  return fmt::format("pleat::kernels::gemm {}{} {} -> {} {} x {}, {} of them flop={:.0f}",
                     ta ? 'T' : 'N', x.transpose_b == Transpose::kYes ? 'T' : 'N',
                     type(data_type<T>()), type(data_type<C>()), x.n, ta ? x.m : x.k,
                     count, flop);
}

template <class T, class C>
double flop_of(const MatrixProduct<T, T, C>& x) {
  return 2.0 * static_cast<double>(x.m) * static_cast<double>(x.n) *
         static_cast<double>(x.k);
}

/// Kernels are free functions that are handed an execution space and nothing else, so
/// what its products share is found by its stream. All of it is gone before Kokkos is.
Engine& engine_of(const ExecSpace& exec) {
  static std::mutex mutex;
  static std::map<gpu::StreamHandle, std::unique_ptr<Engine>> engines;
  const std::lock_guard lock(mutex);
  if (engines.empty()) Kokkos::push_finalize_hook([] { engines.clear(); });
  auto& engine = engines[gpu::stream_of(exec)];
  if (!engine) engine = std::make_unique<Engine>(exec);
  return *engine;
}

}  // namespace

template <class T, class C>
void cublaslt_gemms(const ExecSpace& exec,
                    std::span<const MatrixProduct<T, T, C>> products) {
  Engine& engine = engine_of(exec);
  if (products.empty() || !Kokkos::Profiling::profileLibraryLoaded()) {
    return engine.multiply<T, C>(exec, products);
  }
  double flop = 0.0;
  for (const auto& product : products) flop += flop_of(product);
  const Kokkos::Profiling::ScopedRegion region(
      region_name(products.front(), static_cast<std::int64_t>(products.size()), flop));
  engine.multiply<T, C>(exec, products);
}

template <class T, class C>
void cublaslt_gemm_batch(const ExecSpace& exec, const ProductBatch<T, C>& batch) {
  Engine& engine = engine_of(exec);
  if (!Kokkos::Profiling::profileLibraryLoaded())
    return engine.multiply<T, C>(exec, batch);
  const double flop = static_cast<double>(batch.count) * flop_of(batch.first);
  const Kokkos::Profiling::ScopedRegion region(
      region_name(batch.first, batch.count, flop));
  engine.multiply<T, C>(exec, batch);
}

#define PLEAT_INSTANTIATE(T, C)                                                \
  template void cublaslt_gemms<T, C>(const ExecSpace&,                         \
                                     std::span<const MatrixProduct<T, T, C>>); \
  template void cublaslt_gemm_batch<T, C>(const ExecSpace&, const ProductBatch<T, C>&);
PLEAT_INSTANTIATE(float, float)
PLEAT_INSTANTIATE(double, double)
PLEAT_INSTANTIATE(Bf16, Bf16)
PLEAT_INSTANTIATE(Bf16, float)
#undef PLEAT_INSTANTIATE

}  // namespace pleat::kernels

#endif
