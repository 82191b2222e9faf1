// SPDX-License-Identifier: Apache-2.0
#include "gemm_host.hpp"

#if defined(PLEAT_HOST_GEMM)

#include <algorithm>
#include <functional>
#include <vector>

#include "gemm_blas.hpp"
#include "gemm_onednn.hpp"
#include "gemm_packed.hpp"

namespace pleat::kernels {
namespace {

/// c = beta c: what is left of a product over nothing.
template <class Product>
void scale_result(const Product& product) {
  using C = typename Product::Result;
  using Sum = typename Product::Sum;
  for (std::int64_t i = 0; i < product.m; ++i) {
    C* const row = product.c + i * product.c_stride;
    for (std::int64_t j = 0; j < product.n; ++j) {
      row[j] = product.beta == Sum(0) ? C(0) : C(product.beta * Sum(row[j]));
    }
  }
}

/// How many pieces the rows and the columns of a product are cut into.
struct Cut {
  std::int64_t rows = 1;
  std::int64_t columns = 1;
};

/// Each row piece copies all of b and each column piece all of a: the cut into `pieces` that
/// copies least.
template <class Product>
Cut choose_cut(const Product& product, std::int64_t pieces) {
  Cut best{pieces, 1};
  for (std::int64_t rows = 1; rows <= pieces; ++rows) {
    if (pieces % rows != 0) continue;
    const Cut cut{rows, pieces / rows};
    const auto copied = [&](const Cut& c) { return product.m * c.columns + product.n * c.rows; };
    if (copied(cut) < copied(best)) best = cut;
  }
  return best;
}

/// Rows [i, i + m) and columns [j, j + n) of a product.
template <class Product>
Product part_of(const Product& whole, std::int64_t i, std::int64_t m,
                       std::int64_t j, std::int64_t n) {
  Product part = whole;
  part.m = m;
  part.n = n;
  part.a += whole.transpose_a == Transpose::kYes ? i : i * whole.a_stride;
  part.b += whole.transpose_b == Transpose::kYes ? j * whole.b_stride : j;
  part.c += i * whole.c_stride + j;
  return part;
}

template <class Product>
void append_pieces(const Product& product, const Cut& cut,
                   std::vector<Product>& tasks) {
  // Whole tiles of the kernel, so that only the last piece has a border.
#if defined(PLEAT_PACKED_GEMM)
  constexpr std::int64_t kRowUnit = packed::kRows;
  constexpr std::int64_t kColumnUnit = packed::Block<packed::MethodOf<typename Product::Left, typename Product::Right,
                                   typename Product::Result>>::kColumns;
#else
  constexpr std::int64_t kRowUnit = 8, kColumnUnit = 8;
#endif
  const auto piece = [](std::int64_t extent, std::int64_t pieces, std::int64_t unit) {
    const std::int64_t size = (extent + pieces - 1) / pieces;
    return pieces == 1 ? extent : (size + unit - 1) / unit * unit;
  };
  const std::int64_t rows = piece(product.m, cut.rows, kRowUnit);
  const std::int64_t columns = piece(product.n, cut.columns, kColumnUnit);
  for (std::int64_t i = 0; i < product.m; i += rows) {
    for (std::int64_t j = 0; j < product.n; j += columns) {
      tasks.push_back(part_of(product, i, std::min(rows, product.m - i), j,
                              std::min(columns, product.n - j)));
    }
  }
}

template <class Product>
double work(const Product& product) {
  return static_cast<double>(product.m) * static_cast<double>(product.n) *
         static_cast<double>(std::max<std::int64_t>(product.k, 1));
}

/// Into how many pieces each of `count` products is cut. Pieces copy operands once more, so there
/// are no more than keep all threads busy to the end.
std::int64_t pieces_of_each(std::int64_t count, std::int64_t threads) {
  constexpr std::int64_t kTasksPerThread = 8;
  return std::clamp<std::int64_t>((kTasksPerThread * threads + count - 1) / count, 1, threads);
}

template <class Product>
void append_cut(const Product& product, std::int64_t pieces, std::vector<Product>& tasks) {
  // Below this a second thread costs more than it brings.
  constexpr double kSmallestPiece = 64.0 * 64.0 * 32.0;
  if (product.m == 0 || product.n == 0) return;
  const bool small = work(product) < static_cast<double>(pieces) * kSmallestPiece;
  append_pieces(product, small ? Cut{} : choose_cut(product, pieces), tasks);
}

/// The last tasks are shared by all threads, lest some wait for one of them.
template <class Product>
void cut_last(std::int64_t threads, std::vector<Product>& tasks) {
  const std::size_t end = tasks.size();
  const std::size_t begin = end - std::min(end, static_cast<std::size_t>(threads));
  for (std::size_t i = begin; i < end; ++i) append_cut(Product(tasks[i]), threads, tasks);
  tasks.erase(tasks.begin() + static_cast<std::ptrdiff_t>(begin),
              tasks.begin() + static_cast<std::ptrdiff_t>(end));
}

/// Products become tasks, the largest first. In memory that the thread keeps for the next call.
template <class Product>
const std::vector<Product>& make_tasks(std::span<const Product> products,
                                       std::int64_t threads) {
  static thread_local std::vector<Product> tasks;
  tasks.clear();
  if (products.empty()) return tasks;
  const std::int64_t pieces =
      pieces_of_each(static_cast<std::int64_t>(products.size()), threads);
  tasks.reserve(products.size() * static_cast<std::size_t>(pieces) +
                static_cast<std::size_t>(threads * threads));
  for (const Product& product : products) append_cut(product, pieces, tasks);
  if (pieces < threads) {
    // Not stable_sort, which allocates.
    std::sort(tasks.begin(), tasks.end(), [](const auto& x, const auto& y) {
      return work(x) != work(y) ? work(x) > work(y) : std::less<>()(x.c, y.c);
    });
    cut_last(threads, tasks);
  }
  return tasks;
}

/// \param following  the product that this thread will probably take next, or null
template <class A, class B, class C>
void multiply(const HostProduct<A, B, C>& product,
              [[maybe_unused]] const HostProduct<A, B, C>* following) {
  if (product.m == 0 || product.n == 0) return;
  if (product.k == 0) return scale_result(product);
  if (try_onednn(product)) return;
#if defined(PLEAT_PACKED_GEMM)
  // Scratch memory that outlives the call; it carries nothing from one product to the next.
  thread_local packed::Workspace<packed::MethodOf<A, B, C>> workspace;
  packed::multiply(product, workspace, following);
#else
  blas_gemm(product);
#endif
}

}  // namespace

template <class A, class B, class C>
void host_gemm(const HostProduct<A, B, C>& product) {
  multiply<A, B, C>(product, nullptr);
}

template <class T, class C>
void host_gemms(const ExecSpace& exec, std::span<const HostProduct<T, T, C>> products) {
  const std::int64_t threads = exec.concurrency();
  const auto& tasks = make_tasks(products, threads);
  const auto count = static_cast<std::int64_t>(tasks.size());
  if (count == 1) return host_gemm(tasks.front());
  const HostProduct<T, T, C>* const task = tasks.data();
  using Policy = Kokkos::RangePolicy<ExecSpace, Kokkos::Schedule<Kokkos::Dynamic>>;
  Kokkos::parallel_for("pleat::kernels::gemm", Policy(exec, 0, count, Kokkos::ChunkSize(1)),
                       [=](const std::int64_t index) {
                         const bool more = index + threads < count;
                         multiply(task[index], more ? &task[index + threads] : nullptr);
                       });
}

#define PLEAT_INSTANTIATE(A, B, C) template void host_gemm(const HostProduct<A, B, C>&);
PLEAT_INSTANTIATE(float, float, float)
PLEAT_INSTANTIATE(double, double, double)
PLEAT_INSTANTIATE(Bf16, Bf16, Bf16)
PLEAT_INSTANTIATE(Bf16, Bf16, float)
PLEAT_INSTANTIATE(float, Bf16, float)
#undef PLEAT_INSTANTIATE

#define PLEAT_INSTANTIATE(T, C) \
  template void host_gemms(const ExecSpace&, std::span<const HostProduct<T, T, C>>);
PLEAT_INSTANTIATE(float, float)
PLEAT_INSTANTIATE(double, double)
PLEAT_INSTANTIATE(Bf16, Bf16)
PLEAT_INSTANTIATE(Bf16, float)
#undef PLEAT_INSTANTIATE

}  // namespace pleat::kernels

#endif
