// SPDX-License-Identifier: Apache-2.0
#include "gemm_cublaslt.hpp"

#if defined(PLEAT_CUBLASLT_GEMM)

#include <algorithm>
#include <array>
#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <limits>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <cublasLt.h>
#include <Kokkos_Profiling_ScopedRegion.hpp>

#include "by_stream.hpp"
#include "cublaslt_grouped.hpp"
#include "cublaslt_operation.hpp"
#include "cublaslt_shape.hpp"
#include "gemm_group_samples.hpp"
#include "gemm_portable.hpp"
#include "pleat/base/gpu_stream.hpp"

namespace pleat::kernels {
namespace {

using cublaslt::Algorithm;
using cublaslt::check_blas;
using cublaslt::data_type;
using cublaslt::GroupedOperation;
using cublaslt::kWorkspaceBytes;
using cublaslt::nearby;
using cublaslt::Operation;
using cublaslt::Shape;
using cublaslt::shape_of;

/// Products that run side by side: those of a few experts fill a GPU, one alone may not.
constexpr std::size_t kLanes = 4;

/// Whether every address, stride and contiguous extent is a multiple of 16 bytes, as the
/// library demands of groups and, with shapes on the device, cannot check.
bool suits_groups(const GroupedMatrix& matrix, std::size_t element) {
  constexpr std::int64_t kAlignment = 16;
  const auto size = static_cast<std::int64_t>(element);
  const auto address = static_cast<std::int64_t>(
      reinterpret_cast<std::uintptr_t>(matrix.first) % kAlignment);
  return (address | matrix.row_bytes | matrix.own_bytes | matrix.rows * size |
          matrix.stride * size) %
             kAlignment ==
         0;
}

/// The same of all groups, wherever their first rows lie; and no extent beyond 32 bits.
template <class T, class C>
bool suits_groups(const GroupedProduct<T, C>& product) {
  const auto& x = product.whole;
  constexpr std::int64_t kMost = std::numeric_limits<std::int32_t>::max();
  if (std::max({x.m, x.n, x.k, x.a_stride, x.b_stride, x.c_stride}) > kMost) return false;
  const GroupedMatrices matrices = matrices_of(product);
  return suits_groups(matrices.left, sizeof(T)) &&
         suits_groups(matrices.right, sizeof(T)) &&
         suits_groups(matrices.result, sizeof(C));
}

/// The shape of a product of average size, of which there are so many.
template <class T, class C>
Shape average_shape(const GroupedProduct<T, C>& product, std::int64_t groups) {
  MatrixProduct<T, T, C> one = product.whole;
  std::int64_t& rows = product.sums_rows() ? one.k : one.m;
  rows = (rows + groups - 1) / groups;
  // Strides are the device's business, and so are addresses, which are known to be
  // aligned.
  one.a_stride = one.b_stride = one.c_stride = 0;
  Shape shape = nearby(shape_of<T, C>({.first = one}));
  shape.count = groups;
  return shape;
}

struct GroupAlgorithm {
  Algorithm algorithm;
  /// Whether its sums were compared with plain ones: of calls with beta = 0, and others.
  std::array<bool, 2> is_compared{};
};

/// How the products of all groups go in one call.
struct GroupPlan {
  std::int64_t with_rows = 0;        ///< groups
  Shape average{};                   ///< of their products
  GroupAlgorithm* choice = nullptr;  ///< null: no group has rows
};

/// Whether the products of groups go in one call, and if not, why.
enum class GroupsWay { kTogether, kAskedOneByOne, kWrongTogether };

std::atomic<GroupsWay>& groups_way() {
  static std::atomic<GroupsWay> value = [] {
    const char* const wish = std::getenv("PLEAT_GROUPED_PRODUCTS");
    const bool is_asked = wish != nullptr && std::string_view(wish) == "one-by-one";
    return is_asked ? GroupsWay::kAskedOneByOne : GroupsWay::kTogether;
  }();
  return value;
}

/// No group is multiplied in one call any more. \param adds  whether c was added to, so
/// that nobody can form it anew
void distrust_groups(bool adds) {
  groups_way() = GroupsWay::kWrongTogether;
  PLEAT_REQUIRE(!adds, InternalError, "PL0813",
                "the grouped product of {} added wrong sums\nHINT: with "
                "PLEAT_GROUPED_PRODUCTS=one-by-one experts are multiplied one by one",
                cublaslt_name());
  fmt::print(stderr,
             "WARNING: the grouped product of {} has wrong sums: from now on experts are "
             "multiplied one by one\n",
             cublaslt_name());
}

std::int64_t groups_with_rows(const GroupOffsets& offsets) {
  std::int64_t count = 0;
  for (std::int64_t e = 0; e < offsets.groups(); ++e) {
    count += offsets.host[e] < offsets.host[e + 1];
  }
  return count;
}

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
  /// \return false where the library refuses what it had an algorithm for, and nothing
  /// was done to c; or where it had wrong sums, and beta = 0
  template <class T, class C>
  bool multiply(const ExecSpace& exec, const GroupedProduct<T, C>& product,
                const GroupPlan& plan);

 private:
  const Algorithm& algorithm(const Shape& shape);
  const Algorithm& usable_algorithm(const Shape& shape, Operation& operation);
  GroupAlgorithm& algorithm_for_groups(const Shape& average);
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
  std::map<Shape, GroupAlgorithm> algorithms_for_groups_;  ///< by average shape
  GroupArrays groups_;
};

const Algorithm& Engine::algorithm(const Shape& shape) {
  const auto known = algorithms_.find(shape);
  if (known != algorithms_.end()) return known->second;
  return algorithms_.emplace(shape, cublaslt::ask_for_algorithm(handle_, shape))
      .first->second;
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
  check_blas(
      cublasLtMatmul(handle_.get(), &x.operation, &product.alpha, product.b, &x.left,
                     product.a, &x.right, &product.beta, product.c, &x.result, product.c,
                     &x.result, &*chosen, lane.memory(), kWorkspaceBytes, lane.stream),
      "cublasLtMatmul");
}

GroupAlgorithm& Engine::algorithm_for_groups(const Shape& average) {
  const auto known = algorithms_for_groups_.find(average);
  if (known != algorithms_for_groups_.end()) return known->second;
  return algorithms_for_groups_
      .emplace(average,
               GroupAlgorithm{cublaslt::ask_for_groups(handle_, average, groups_)})
      .first->second;
}

template <class T, class C>
std::optional<GroupPlan> Engine::plan(const GroupedProduct<T, C>& product) {
  GroupPlan result{.with_rows = groups_with_rows(product.offsets)};
  groups_.reserve(product.offsets.groups());
  if (result.with_rows == 0) return result;
  result.average = average_shape(product, result.with_rows);
  result.choice = &algorithm_for_groups(result.average);
  if (!result.choice->algorithm) return {};
  return result;
}

/// Over the arrays that are formed. What is refused once is not tried again.
bool Engine::launch(const GroupPlan& plan) {
  GroupedOperation x(plan.average, groups_);
  Lane& lane = lanes_.front();
  const cublasStatus_t status = cublasLtMatmul(
      handle_.get(), &x.operation, groups_.scalar(GroupArrays::kAlpha), groups_.matrix(0),
      x.left.get(), groups_.matrix(1), x.right.get(), groups_.scalar(GroupArrays::kBeta),
      groups_.matrix(2), x.result.get(), groups_.matrix(2), x.result.get(),
      &*plan.choice->algorithm, lane.memory(), kWorkspaceBytes, lane.stream);
  if (status == CUBLAS_STATUS_NOT_SUPPORTED) {
    plan.choice->algorithm = Algorithm();  // reset() is an internal error of nvcc 13.0
    return false;
  }
  check_blas(status, "cublasLtMatmul");
  return true;
}

/// Some sums of the first product with an algorithm are compared with plain ones.
template <class T, class C>
bool Engine::launch_and_compare(const ExecSpace& exec,
                                const GroupedProduct<T, C>& product,
                                const GroupPlan& plan) {
  const bool adds = product.whole.beta != Accumulator<C>(0);
  bool& is_compared = plan.choice->is_compared[adds ? 1 : 0];
  if (is_compared) return launch(plan);
  const auto samples = form_samples(exec, product, groups_);
  if (!launch(plan)) return false;
  is_compared = true;
  if (samples_agree(exec, samples, product.offsets.groups())) return true;
  distrust_groups(adds);
  return false;
}

/// Groups without rows are left out of the arrays, as NVIDIA's notes tell of errors with
/// them, and where each has its own c, it is scaled by beta.
template <class T, class C>
bool Engine::multiply(const ExecSpace& exec, const GroupedProduct<T, C>& product,
                      const GroupPlan& plan) {
  if (plan.with_rows == 0 && !product.sums_rows()) return true;
  form_groups(exec, product, groups_);
  if (plan.choice != nullptr && !launch_and_compare(exec, product, plan)) return false;
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

/// NVIDIA documents it for others as well, but tells of wrong results there (number
/// 6798616 in the release notes of cuBLAS 13.8), and builds are for Hopper.
bool is_gpu_for_groups() {
  int device = 0, major = 0;
  gpu::check(cudaGetDevice(&device), "GetDevice");
  gpu::check(cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, device),
             "DeviceGetAttribute");
  return major == 9;
}

/// Why the products of groups go one by one on this machine, whatever their shapes;
/// empty: they do not. Asks nothing that takes time.
std::string_view reason_against_groups() {
  if (groups_way() == GroupsWay::kAskedOneByOne) return "as PLEAT_GROUPED_PRODUCTS says";
  if (groups_way() == GroupsWay::kWrongTogether) return "together their sums were wrong";
  if (!cublaslt::has_sound_groups(cublasLtGetVersion()) ||
      cublaslt::grouped_layout_init() == nullptr) {
    return "13.6.2, 13.8 or newer has a sound grouped product";
  }
  return is_gpu_for_groups() ? "" : "grouped products are for Hopper";
}

/// The types that NVIDIA documents, and products over something.
template <class T, class C>
bool may_go_together(const GroupedProduct<T, C>& product) {
  if (data_type<T>() != CUDA_R_16BF || !reason_against_groups().empty()) return false;
  const auto& x = product.whole;
  const bool is_empty = x.n == 0 || (product.sums_rows() ? x.m : x.k) == 0;
  const auto groups = static_cast<std::size_t>(product.offsets.groups());
  return !is_empty && product.offsets.device.size() > groups && suits_groups(product);
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
  if (!may_go_together(product)) return false;
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
  const std::string_view reason = reason_against_groups();
  return reason.empty() ? "in one call" : fmt::format("one by one ({})", reason);
}

void set_groups_one_by_one(bool value) {
  groups_way() = value ? GroupsWay::kAskedOneByOne : GroupsWay::kTogether;
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
