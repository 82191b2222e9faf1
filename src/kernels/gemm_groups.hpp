// SPDX-License-Identifier: Apache-2.0
#pragma once

/// \file
/// \brief Shapes and matrices of the products of all groups, formed on the device from
/// the offsets there. The host sends nothing and loops over no group.

#include <cstdint>
#include <string>

#include "gemm_product.hpp"

namespace pleat::kernels {

/// \brief One product for each group of rows. A matrix with one row for each row of all
/// groups is cut by the offsets; of the other kind each group has its own.
template <class T, class C = T>
struct GroupedProduct {
  /// All rows at once: m is their number, or k where a is transposed.
  MatrixProduct<T, T, C> whole;
  std::int64_t own_step = 0;  ///< elements from one group's own matrix to the next
  GroupOffsets offsets;

  /// Whether each group has its own c, the sum over its rows; otherwise its own b.
  bool sums_rows() const { return whole.transpose_a == Transpose::kYes; }
};

/// \brief A matrix of each group in BLAS's column-major eyes: a row as stored is a
/// column.
struct GroupedMatrix {
  const void* first = nullptr;
  std::int64_t row_bytes = 0;  ///< to the group's first row; 0: it has its own matrix
  std::int64_t own_bytes = 0;  ///< from one group's own matrix to the next
  std::int32_t rows = 0;       ///< BLAS's: the extent that is contiguous
  std::int32_t columns = 0;    ///< where they are not the group's rows
  std::int32_t stride = 0;
};

/// \brief left * right = result, as BLAS sees b, a and c.
struct GroupedMatrices {
  GroupedMatrix left, right, result;
};

template <class T>
GroupedMatrix matrix_by_rows(const T* first, std::int64_t columns, std::int64_t stride) {
  return {.first = first,
          .row_bytes = stride * static_cast<std::int64_t>(sizeof(T)),
          .rows = static_cast<std::int32_t>(columns),
          .stride = static_cast<std::int32_t>(stride)};
}

template <class T>
GroupedMatrix own_matrix(const T* first, std::int64_t rows, std::int64_t columns,
                         std::int64_t stride, std::int64_t step) {
  return {.first = first,
          .own_bytes = step * static_cast<std::int64_t>(sizeof(T)),
          .rows = static_cast<std::int32_t>(columns),
          .columns = static_cast<std::int32_t>(rows),
          .stride = static_cast<std::int32_t>(stride)};
}

template <class T, class C>
GroupedMatrices matrices_of(const GroupedProduct<T, C>& product) {
  const auto& x = product.whole;
  if (product.sums_rows()) {
    return {.left = matrix_by_rows(x.b, x.n, x.b_stride),
            .right = matrix_by_rows(x.a, x.m, x.a_stride),
            .result = own_matrix(x.c, x.m, x.n, x.c_stride, product.own_step)};
  }
  const bool tb = x.transpose_b == Transpose::kYes;
  return {.left = own_matrix(x.b, tb ? x.n : x.k, tb ? x.k : x.n, x.b_stride,
                             product.own_step),
          .right = matrix_by_rows(x.a, x.k, x.a_stride),
          .result = matrix_by_rows(x.c, x.n, x.c_stride)};
}

/// \brief Arrays of one number for each group that has rows, in the order of the groups.
struct GroupArrays {
  enum Extent { kRows, kColumns, kStride, kExtents };
  enum Scalar { kAlpha, kBeta, kScalars };
  static constexpr int kMatrices = 3;  ///< left, right, result
  /// cuBLASLt wants arrays of addresses to begin at multiples of 16 bytes (Transformer
  /// Engine, cublaslt_grouped_gemm.cu); those of extents then do as well.
  static constexpr std::int64_t kUnit = 4;
  static constexpr std::int64_t kSamples = 16;  ///< of each group

  DeviceView<std::int32_t, 2> extents;     ///< [kMatrices kExtents, groups]
  DeviceView<std::uintptr_t, 2> matrices;  ///< addresses, [kMatrices, groups]
  DeviceView<std::int32_t, 1> empty;       ///< groups without rows
  DeviceView<float, 1> scalars;            ///< [kScalars]
  /// gemm_group_samples.hpp: value and tolerance, [2, groups kSamples]
  DeviceView<double, 2> expected;

  /// Room for that many groups. Takes memory only where it was not enough so far.
  void reserve(std::int64_t groups) {
    if (groups <= static_cast<std::int64_t>(empty.size())) return;
    const auto count = static_cast<std::size_t>((groups + kUnit - 1) / kUnit * kUnit);
    const auto label = [](const std::string& name) {
      return Kokkos::view_alloc(Kokkos::WithoutInitializing, name);
    };
    extents = decltype(extents)(label("pleat::kernels::group_extents"),
                                kMatrices * kExtents, count);
    matrices =
        decltype(matrices)(label("pleat::kernels::group_matrices"), kMatrices, count);
    empty = decltype(empty)(label("pleat::kernels::group_empty"), count);
    scalars = decltype(scalars)(label("pleat::kernels::group_scalars"), kScalars);
    expected =
        decltype(expected)(label("pleat::kernels::group_expected"), 2, count * kSamples);
  }
  const std::int32_t* extent(int matrix, Extent which) const {
    return extents.data() + (matrix * kExtents + which) * extents.extent_int(1);
  }
  std::uintptr_t* matrix(int which) const {
    return matrices.data() + which * matrices.extent_int(1);
  }
  const float* scalar(Scalar which) const { return scalars.data() + which; }
};

/// \brief One work item writes what belongs to one group. To count the groups before it
/// costs less, for the few hundred that there are, than the launches of a scan.
struct FormGroups {
  GroupedMatrices x;
  float alpha, beta;
  DeviceView<const std::int64_t, 1> offsets;
  GroupArrays arrays;

  KOKKOS_FUNCTION void operator()(const std::int32_t group) const {
    if (group == 0) {
      arrays.scalars(GroupArrays::kAlpha) = alpha;
      arrays.scalars(GroupArrays::kBeta) = beta;
    }
    std::int32_t before = 0;  // with rows
    for (std::int32_t g = 0; g < group; ++g) before += offsets(g) < offsets(g + 1);
    if (offsets(group) == offsets(group + 1)) {
      arrays.empty(group - before) = group;
      return;
    }
    write(x.left, 0, group, before);
    write(x.right, 1, group, before);
    write(x.result, 2, group, before);
  }

  KOKKOS_FUNCTION void write(const GroupedMatrix& matrix, int which, std::int32_t group,
                             std::int32_t place) const {
    const std::int64_t begin = offsets(group);
    const auto rows = static_cast<std::int32_t>(offsets(group + 1) - begin);
    const int first = which * GroupArrays::kExtents;
    arrays.matrices(which, place) =
        reinterpret_cast<std::uintptr_t>(matrix.first) +
        static_cast<std::uintptr_t>(begin * matrix.row_bytes + group * matrix.own_bytes);
    arrays.extents(first + GroupArrays::kRows, place) = matrix.rows;
    arrays.extents(first + GroupArrays::kColumns, place) =
        matrix.row_bytes == 0 ? matrix.columns : rows;
    arrays.extents(first + GroupArrays::kStride, place) = matrix.stride;
  }
};

/// \brief Fills the arrays for products in bf16, whose alpha and beta are fp32.
template <class T, class C>
void form_groups(const ExecSpace& exec, const GroupedProduct<T, C>& product,
                 const GroupArrays& arrays) {
  using Range = Kokkos::RangePolicy<ExecSpace, Kokkos::IndexType<std::int32_t>>;
  Kokkos::parallel_for(
      "pleat::kernels::form_groups",
      Range(exec, 0, static_cast<std::int32_t>(product.offsets.groups())),
      FormGroups{matrices_of(product), static_cast<float>(product.whole.alpha),
                 static_cast<float>(product.whole.beta), product.offsets.device, arrays});
}

/// \brief beta c of the groups without rows, one work item for an element.
template <class C>
struct ScaleEmptyGroups {
  C* c;
  std::int64_t m, n, stride, step;
  Accumulator<C> beta;
  DeviceView<const std::int32_t, 1> groups;

  KOKKOS_FUNCTION void operator()(const std::int64_t item) const {
    const std::int64_t row = item / n % m;
    C& result = c[groups(item / (m * n)) * step + row * stride + item % n];
    // beta = 0 must not read c, which may hold NaN.
    result = beta == Accumulator<C>(0) ? C(0) : C(beta * Accumulator<C>(result));
  }
};

/// \brief After form_groups(), where c is each group's own. \param empty  groups without
/// rows
template <class T, class C>
void scale_empty_groups(const ExecSpace& exec, const GroupedProduct<T, C>& product,
                        const GroupArrays& arrays, std::int64_t empty) {
  const auto& x = product.whole;
  if (empty == 0 || x.beta == Accumulator<C>(1)) return;
  using Range = Kokkos::RangePolicy<ExecSpace, Kokkos::IndexType<std::int64_t>>;
  Kokkos::parallel_for("pleat::kernels::scale_empty_groups",
                       Range(exec, 0, empty * x.m * x.n),
                       ScaleEmptyGroups<C>{x.c, x.m, x.n, x.c_stride, product.own_step,
                                           x.beta, arrays.empty});
}

}  // namespace pleat::kernels
