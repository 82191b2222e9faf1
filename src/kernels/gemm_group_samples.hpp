// SPDX-License-Identifier: Apache-2.0
#pragma once

/// \file
/// \brief Some elements of the products of all groups by plain sums, which those of a
/// library are compared with.

#include <cstdint>

#include "gemm_groups.hpp"

namespace pleat::kernels {

/// \brief One work item for each sample: so many elements of each group, in its first and
/// last row and column and between them.
template <class T, class C>
struct GroupSamples {
  MatrixProduct<T, T, C> whole;
  std::int64_t own_step;
  DeviceView<const std::int64_t, 1> offsets;
  DeviceView<double, 2> expected;  ///< GroupArrays::expected

  struct Form {};
  struct Compare {};

  /// \brief What one element of c is the sum of.
  struct Element {
    const T* a;
    std::int64_t a_step;
    const T* b;
    std::int64_t b_step;
    std::int64_t count;  ///< of products; 0 where the group has no rows
    C* c;
  };

  KOKKOS_FUNCTION Element element(const std::int64_t item) const {
    constexpr std::int64_t kEach = GroupArrays::kSamples;
    const std::int64_t group = item / kEach, sample = item % kEach;
    const std::int64_t begin = offsets(group), rows = offsets(group + 1) - begin;
    const bool sums_rows = whole.transpose_a == Transpose::kYes;
    const std::int64_t i = sample * ((sums_rows ? whole.m : rows) - 1) / (kEach - 1);
    const std::int64_t j = sample * 7 % kEach * (whole.n - 1) / (kEach - 1);
    if (sums_rows) {
      return {whole.a + begin * whole.a_stride + i,
              whole.a_stride,
              whole.b + begin * whole.b_stride + j,
              whole.b_stride,
              rows,
              whole.c + group * own_step + i * whole.c_stride + j};
    }
    const bool tb = whole.transpose_b == Transpose::kYes;
    return {whole.a + (begin + i) * whole.a_stride,
            1,
            whole.b + group * own_step + (tb ? j * whole.b_stride : j),
            tb ? 1 : whole.b_stride,
            rows == 0 ? 0 : whole.k,
            whole.c + (begin + i) * whole.c_stride + j};
  }

  template <class Number>
  KOKKOS_FUNCTION static double number(const Number& value) {
    return static_cast<double>(static_cast<Accumulator<Number>>(value));
  }

  /// \brief Before the product: what an element has to be, and how far from it another
  /// order of summing and the rounding to bf16 may lead.
  KOKKOS_FUNCTION void operator()(Form, const std::int64_t item) const {
    constexpr double kSumming = 1.0 / 1024, kRounding = 1.0 / 256;
    const Element x = element(item);
    if (x.count == 0) return;
    double sum = 0.0, size = 0.0;
    for (std::int64_t k = 0; k < x.count; ++k) {
      const double term = number(x.a[k * x.a_step]) * number(x.b[k * x.b_step]);
      sum += term;
      size += Kokkos::abs(term);
    }
    const auto alpha = static_cast<double>(whole.alpha);
    const auto beta = static_cast<double>(whole.beta);
    const double before = beta == 0.0 ? 0.0 : beta * number(*x.c);
    const double value = alpha * sum + before;
    expected(0, item) = value;
    expected(1, item) = kSumming * (Kokkos::abs(alpha) * size + Kokkos::abs(before)) +
                        kRounding * Kokkos::abs(value);
  }

  /// \brief After it: counts elements that are too far from that.
  KOKKOS_FUNCTION void operator()(Compare, const std::int64_t item,
                                  std::int64_t& wrong) const {
    constexpr double kMayOverflow = 1e30;  // beyond it, and by NaN, nothing is told
    const Element x = element(item);
    if (x.count == 0 || !(expected(1, item) < kMayOverflow)) return;
    const double distance = Kokkos::abs(number(*x.c) - expected(0, item));
    wrong += distance <= expected(1, item) ? 0 : 1;
  }
};

template <class T, class C>
GroupSamples<T, C> form_samples(const ExecSpace& exec,
                                const GroupedProduct<T, C>& product,
                                const GroupArrays& arrays) {
  using Samples = GroupSamples<T, C>;
  const Samples samples{product.whole, product.own_step, product.offsets.device,
                        arrays.expected};
  const auto count = product.offsets.groups() * GroupArrays::kSamples;
  Kokkos::parallel_for(
      "pleat::kernels::form_samples",
      Kokkos::RangePolicy<ExecSpace, typename Samples::Form,
                          Kokkos::IndexType<std::int64_t>>(exec, 0, count),
      samples);
  return samples;
}

/// \brief Whether the product has them as they were formed. The host waits.
template <class T, class C>
bool samples_agree(const ExecSpace& exec, const GroupSamples<T, C>& samples,
                   std::int64_t groups) {
  using Samples = GroupSamples<T, C>;
  std::int64_t wrong = 0;
  Kokkos::parallel_reduce("pleat::kernels::samples_agree",
                          Kokkos::RangePolicy<ExecSpace, typename Samples::Compare,
                                              Kokkos::IndexType<std::int64_t>>(
                              exec, 0, groups * GroupArrays::kSamples),
                          samples, wrong);
  return wrong == 0;
}

}  // namespace pleat::kernels
