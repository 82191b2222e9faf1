// SPDX-License-Identifier: Apache-2.0
#pragma once

/// \file
/// \brief What cuBLASLt's choice of an algorithm depends on. For gemm_cublaslt.cpp.

#include <bit>
#include <compare>
#include <cstdint>
#include <type_traits>

#include <cublasLt.h>

#include "gemm_cublaslt.hpp"

namespace pleat::kernels::cublaslt {

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

/// \brief The largest power of two up to 16, the widest load, that divides an address and
/// the distance, in bytes, to the next matrix.
inline std::uint32_t alignment_of(const void* address, std::size_t distance) {
  constexpr std::uintptr_t kMost = 16;
  const auto bits = reinterpret_cast<std::uintptr_t>(address) | distance | kMost;
  return static_cast<std::uint32_t>(bits & (~bits + 1));
}

/// \brief All that the choice of an algorithm depends on.
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

/// \brief Rounded up to a number of four binary digits and zeros.
inline std::int64_t rounded_up(std::int64_t extent) {
  const int digits = std::bit_width(static_cast<std::uint64_t>(extent));
  if (digits <= 4) return extent;
  const std::int64_t unit = std::int64_t{1} << (digits - 4);
  return (extent + unit - 1) / unit * unit;
}

/// \brief One shape for many: the number of rows of an expert changes with every
/// micro-batch, and to ask for an algorithm takes longer than a small product. No stride
/// bounds the extent that is rounded: the rows of a, or what a^T b sums over.
inline Shape nearby(Shape shape) {
  if (!shape.transpose_a) {
    shape.m = rounded_up(shape.m);
  } else if (!shape.transpose_b) {
    shape.k = rounded_up(shape.k);
  }
  return shape;
}

}  // namespace pleat::kernels::cublaslt
