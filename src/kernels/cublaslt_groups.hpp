// SPDX-License-Identifier: Apache-2.0
#pragma once

/// \file
/// \brief Whether the products of all groups go in one call of cuBLASLt, and what is known of
/// the algorithms for that. For gemm_cublaslt.cpp.

#include <algorithm>
#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>
#include <string_view>

#include <cublasLt.h>

#include "cublaslt_grouped.hpp"
#include "cublaslt_operation.hpp"
#include "cublaslt_shape.hpp"
#include "gemm_cublaslt.hpp"
#include "pleat/base/environment.hpp"
#include "pleat/base/error.hpp"
#include "pleat/base/gpu_stream.hpp"
#include "pleat/base/warning.hpp"

namespace pleat::kernels::cublaslt {

/// \brief Whether every address, stride and contiguous extent is a multiple of 16 bytes, as
/// the library demands of groups and, with shapes on the device, cannot check.
inline bool suits_groups(const GroupedMatrix& matrix, std::size_t element) {
  constexpr std::int64_t kAlignment = 16;
  const auto size = static_cast<std::int64_t>(element);
  const auto address = static_cast<std::int64_t>(
      reinterpret_cast<std::uintptr_t>(matrix.first) % kAlignment);
  return (address | matrix.row_bytes | matrix.own_bytes | matrix.rows * size |
          matrix.stride * size) %
             kAlignment ==
         0;
}

/// \brief The same of all groups, wherever their first rows lie; and no extent beyond 32 bits.
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

/// \brief The shape of a product of average size, of which there are so many.
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

/// \brief Of which kind of product an algorithm's sums were compared with plain ones. Averages
/// have no part in it: they change from step to step, the library's few algorithms do not.
struct ComparedSums {
  std::array<std::byte, sizeof(cublasLtMatmulAlgo_t)> algorithm;
  cudaDataType_t out;
  bool transpose_a, transpose_b;
  bool adds;  ///< to c, beta not being 0
  auto operator<=>(const ComparedSums&) const = default;
};

inline ComparedSums compared_sums(const Algorithm& algorithm, const Shape& shape,
                                  bool adds) {
  ComparedSums result{.algorithm = {},
                      .out = shape.out,
                      .transpose_a = shape.transpose_a,
                      .transpose_b = shape.transpose_b,
                      .adds = adds};
  std::memcpy(result.algorithm.data(), &*algorithm, result.algorithm.size());
  return result;
}

/// \brief How the products of all groups go in one call.
struct GroupPlan {
  std::int64_t with_rows = 0;  ///< groups; 0: nothing below is used
  Shape average{};             ///< of their products
  Algorithm algorithm{};
};

/// \brief Whether the products of groups go one by one in any case, as somebody wishes.
inline std::atomic<bool>& groups_one_by_one() {
  static std::atomic<bool> value = is_wished("PLEAT_GROUPED_PRODUCTS", "one-by-one");
  return value;
}

inline constexpr const char* kGroupsHint =
    "\nHINT: with PLEAT_GROUPED_PRODUCTS=one-by-one experts are multiplied one by one, "
    "which gives other bits.";

/// \brief To go on one by one would give other bits than a run that is continued and does not
/// know of them yet.
[[noreturn]] inline void fail_by_wrong_sums() {
  PLEAT_FAIL(InternalError, "PL0813", "the grouped product of {} has wrong sums{}",
             cublaslt_name(), kGroupsHint);
}

/// \brief What the library says before it has done anything, about arguments or the GPU
/// alone.
inline bool is_refusal(cublasStatus_t status) {
  return status == CUBLAS_STATUS_NOT_SUPPORTED || status == CUBLAS_STATUS_INVALID_VALUE ||
         status == CUBLAS_STATUS_ARCH_MISMATCH;
}

inline void tell_of_refusal(cublasStatus_t status) {
  static std::atomic_flag is_told = ATOMIC_FLAG_INIT;
  if (is_told.test_and_set()) return;
  warn(Concerns::kEveryRank,
       fmt::format("{} refuses grouped products that it has an algorithm for ({}): "
                   "those experts are multiplied one by one",
                   cublaslt_name(), cublasLtGetStatusString(status)));
}

inline std::int64_t groups_with_rows(const GroupOffsets& offsets) {
  std::int64_t count = 0;
  for (std::int64_t e = 0; e < offsets.groups(); ++e) {
    count += offsets.host[e] < offsets.host[e + 1];
  }
  return count;
}

/// \brief NVIDIA documents it for others as well, but tells of wrong results there (number
/// 6798616 in the release notes of cuBLAS 13.8), and builds are for Hopper.
inline bool is_gpu_for_groups() {
  int device = 0, major = 0;
  gpu::check(cudaGetDevice(&device), "GetDevice");
  gpu::check(cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, device),
             "DeviceGetAttribute");
  return major == 9;
}

/// \brief Why the products of groups go one by one on this machine, whatever their shapes;
/// empty: they do not. Asks nothing that takes time.
inline std::string_view reason_against_groups() {
  if (groups_one_by_one()) return "as PLEAT_GROUPED_PRODUCTS says";
  if (!has_sound_groups(cublasLtGetVersion()) || grouped_layout_init() == nullptr) {
    return "13.6.2, 13.8 or newer has a sound grouped product";
  }
  return is_gpu_for_groups() ? "" : "grouped products are for Hopper";
}

/// \brief The types that NVIDIA documents, and products over something.
template <class T, class C>
bool may_go_together(const GroupedProduct<T, C>& product) {
  if (data_type<T>() != CUDA_R_16BF || !reason_against_groups().empty()) return false;
  const auto& x = product.whole;
  const bool is_empty = x.n == 0 || (product.sums_rows() ? x.m : x.k) == 0;
  const auto groups = static_cast<std::size_t>(product.offsets.groups());
  return !is_empty && product.offsets.device.size() > groups && suits_groups(product);
}

}  // namespace pleat::kernels::cublaslt
