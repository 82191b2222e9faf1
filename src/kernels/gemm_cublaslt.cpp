// SPDX-License-Identifier: Apache-2.0
#include "gemm_cublaslt.hpp"

#if defined(PLEAT_CUBLASLT_GEMM)

#include <algorithm>
#include <array>
#include <cstddef>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include <cublasLt.h>
#include <Kokkos_Profiling_ScopedRegion.hpp>

#include "by_stream.hpp"
#include "cublaslt_groups.hpp"
#include "cublaslt_operation.hpp"
#include "cublaslt_shape.hpp"
#include "gemm_group_samples.hpp"
#include "gemm_portable.hpp"
#include "pleat/base/gpu_stream.hpp"

namespace pleat::kernels {
namespace {

using cublaslt::Algorithm;
using cublaslt::check_blas;
using cublaslt::ComparedSums;
using cublaslt::data_type;
using cublaslt::GroupedOperation;
using cublaslt::GroupPlan;
using cublaslt::kWorkspaceBytes;
using cublaslt::nearby;
using cublaslt::Operation;
using cublaslt::Shape;
using cublaslt::shape_of;

/// Products that run side by side: those of a few experts fill a GPU, one alone may not.
constexpr std::size_t kLanes = 4;

/// A stream with memory for intermediate sums. The first lane is the stream of the
/// execution space itself.
struct Lane {
  std::optional<gpu::Stream> own;
  gpu::StreamHandle stream = nullptr;
  gpu::Event done;
  DeviceView<std::byte, 1> workspace;

  void* memory() {
    if (workspace.size() == 0) {
      workspace = DeviceView<std::byte, 1>(
          Kokkos::view_alloc(Kokkos::WithoutInitializing, "pleat::kernels::gemm"),
          kWorkspaceBytes);
    }
    return workspace.data();
  }
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
  /// \return none where the library does not do them together
  template <class T, class C>
  std::optional<GroupPlan> plan(const GroupedProduct<T, C>& product);
  /// \return false where the library refuses what it had an algorithm for: nothing was done
  /// to c
  template <class T, class C>
  bool multiply(const ExecSpace& exec, const GroupedProduct<T, C>& product,
                const GroupPlan& plan);

 private:
  Algorithm algorithm(const Shape& shape);
  Algorithm usable_algorithm(const Shape& shape, Operation& operation);
  template <class T, class C>
  void launch(const ExecSpace& exec, const ProductBatch<T, C>& batch, Lane& lane);
  bool launch(const GroupPlan& plan);
  template <class T, class C>
  bool launch_and_compare(const ExecSpace& exec, const GroupedProduct<T, C>& product,
                          const GroupPlan& plan);
  void fork();
  void join();

  cublaslt::Handle handle_;
  std::array<Lane, kLanes> lanes_;
  gpu::Event begin_;
  std::map<Shape, Algorithm> algorithms_;
  std::map<Shape, Algorithm> algorithms_for_groups_;  ///< by average shape
  std::set<ComparedSums> compared_;
  GroupArrays groups_;
};

/// What `ask` says about a shape, once. Where there are very many shapes all are forgotten: to
/// ask again gives the same answers.
template <class Ask>
Algorithm ask_once(std::map<Shape, Algorithm>& known, const Shape& shape, const Ask& ask) {
  constexpr std::size_t kMostKnown = 4096;
  const auto found = known.find(shape);
  if (found != known.end()) return found->second;
  if (known.size() == kMostKnown) known.clear();
  return known.emplace(shape, ask()).first->second;
}

Algorithm Engine::algorithm(const Shape& shape) {
  return ask_once(algorithms_, shape,
                  [&] { return cublaslt::ask_for_algorithm(handle_, shape); });
}

/// That of the nearby shape, unless it does not do for this one.
Algorithm Engine::usable_algorithm(const Shape& shape, Operation& x) {
  const Shape near = nearby(shape);
  const Algorithm wanted = algorithm(near);
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
  const Algorithm chosen = usable_algorithm(shape, x);
  if (!chosen) return multiply_portably<T, C>(exec, batch);
  check_blas(
      cublasLtMatmul(handle_.get(), &x.operation, &product.alpha, product.b, &x.left,
                     product.a, &x.right, &product.beta, product.c, &x.result, product.c,
                     &x.result, &*chosen, lane.memory(), kWorkspaceBytes, lane.stream),
      "cublasLtMatmul");
}

template <class T, class C>
std::optional<GroupPlan> Engine::plan(const GroupedProduct<T, C>& product) {
  GroupPlan result{.with_rows = cublaslt::groups_with_rows(product.offsets)};
  groups_.reserve(product.offsets.groups());
  if (result.with_rows == 0) return result;
  result.average = cublaslt::average_shape(product, result.with_rows);
  result.algorithm = ask_once(algorithms_for_groups_, result.average, [&] {
    return cublaslt::ask_for_groups(handle_, result.average, groups_);
  });
  if (!result.algorithm) return {};
  return result;
}

/// Over the arrays that are formed. Each call that is refused is tried: which way one goes
/// must not depend on those before it.
bool Engine::launch(const GroupPlan& plan) {
  GroupedOperation x(plan.average, groups_);
  Lane& lane = lanes_.front();
  const cublasStatus_t status = cublasLtMatmul(
      handle_.get(), &x.operation, groups_.scalar(GroupArrays::kAlpha), groups_.matrix(0),
      x.left.get(), groups_.matrix(1), x.right.get(), groups_.scalar(GroupArrays::kBeta),
      groups_.matrix(2), x.result.get(), groups_.matrix(2), x.result.get(),
      &*plan.algorithm, lane.memory(), kWorkspaceBytes, lane.stream);
  if (cublaslt::is_refusal(status)) {
    cublaslt::tell_of_refusal(status);
    return false;
  }
  // After anything else c may be written in part, or chance, such as memory, decides.
  PLEAT_REQUIRE(status == CUBLAS_STATUS_SUCCESS, InternalError, "PL0813",
                "cublasLtMatmul failed for groups: {}{}", cublasLtGetStatusString(status),
                cublaslt::kGroupsHint);
  return true;
}

/// Some sums of the first product with an algorithm are compared with plain ones.
template <class T, class C>
bool Engine::launch_and_compare(const ExecSpace& exec,
                                const GroupedProduct<T, C>& product,
                                const GroupPlan& plan) {
  const bool adds = product.whole.beta != Accumulator<C>(0);
  const ComparedSums sums = cublaslt::compared_sums(plan.algorithm, plan.average, adds);
  if (compared_.contains(sums)) return launch(plan);
  const auto samples = form_samples(exec, product, groups_);
  if (!launch(plan)) return false;
  if (!samples_agree(exec, samples, product.offsets.groups())) {
    cublaslt::fail_by_wrong_sums();
  }
  compared_.insert(sums);
  return true;
}

/// Groups without rows are left out of the arrays, as NVIDIA's notes tell of errors with
/// them, and where each has its own c, it is scaled by beta.
template <class T, class C>
bool Engine::multiply(const ExecSpace& exec, const GroupedProduct<T, C>& product,
                      const GroupPlan& plan) {
  if (plan.with_rows == 0 && !product.sums_rows()) return true;
  form_groups(exec, product, groups_);
  if (plan.with_rows > 0 && !launch_and_compare(exec, product, plan)) return false;
  if (product.sums_rows()) {
    scale_empty_groups(exec, product, groups_, product.offsets.groups() - plan.with_rows);
  }
  return true;
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

}  // namespace

template <class T, class C>
void cublaslt_gemms(const ExecSpace& exec,
                    std::span<const MatrixProduct<T, T, C>> products) {
  Engine& engine = object_by_stream<Engine>(exec);
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
  Engine& engine = object_by_stream<Engine>(exec);
  if (!Kokkos::Profiling::profileLibraryLoaded())
    return engine.multiply<T, C>(exec, batch);
  const double flop = static_cast<double>(batch.count) * flop_of(batch.first);
  const Kokkos::Profiling::ScopedRegion region(
      region_name(batch.first, batch.count, flop));
  engine.multiply<T, C>(exec, batch);
}

template <class T, class C>
bool cublaslt_grouped_gemm(const ExecSpace& exec, const GroupedProduct<T, C>& product) {
  if (!cublaslt::may_go_together(product)) return false;
  Engine& engine = object_by_stream<Engine>(exec);
  const std::optional<GroupPlan> plan = engine.plan(product);
  if (!plan) return false;
  if (!Kokkos::Profiling::profileLibraryLoaded())
    return engine.multiply(exec, product, *plan);
  const Kokkos::Profiling::ScopedRegion region(
      region_name(product.whole, product.offsets.groups(), flop_of(product.whole)));
  return engine.multiply(exec, product, *plan);
}

std::string cublaslt_name() {
  const std::size_t version = cublasLtGetVersion();
  return fmt::format("cuBLASLt {}.{}.{}", version / 10000, version / 100 % 100,
                     version % 100);
}

std::string cublaslt_grouped_way() {
  const std::string_view reason = cublaslt::reason_against_groups();
  return reason.empty() ? "in one call" : fmt::format("one by one ({})", reason);
}

void set_groups_one_by_one(bool value) {
  cublaslt::groups_one_by_one() = value;
}

#define PLEAT_INSTANTIATE(T, C)                                                         \
  template void cublaslt_gemms<T, C>(const ExecSpace&,                                  \
                                     std::span<const MatrixProduct<T, T, C>>);          \
  template void cublaslt_gemm_batch<T, C>(const ExecSpace&, const ProductBatch<T, C>&); \
  template bool cublaslt_grouped_gemm<T, C>(const ExecSpace&,                           \
                                            const GroupedProduct<T, C>&);
PLEAT_INSTANTIATE(float, float)
PLEAT_INSTANTIATE(double, double)
PLEAT_INSTANTIATE(Bf16, Bf16)
PLEAT_INSTANTIATE(Bf16, float)
#undef PLEAT_INSTANTIATE

}  // namespace pleat::kernels

#endif
