// SPDX-License-Identifier: Apache-2.0
//
// Legend: as attention.hpp; one sequence in a fused projection.
#include "attention_check.hpp"

#include "attention_cudnn.hpp"

#if defined(PLEAT_CUDNN_ATTENTION)

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include <fmt/format.h>

#include "attention_products.hpp"
#include "pleat/base/arena.hpp"

namespace pleat::kernels {
namespace {

/// A longer sequence is checked by so many rows: the arrays of more would take gigabytes.
constexpr std::int64_t kMostRows = 8192;
/// Rows whose elements are alike in size: later queries average over more values.
constexpr std::int64_t kTileRows = 128;
/// Of the largest element nearby: both round probabilities, their gradients and the result to
/// bf16, 2^-9 each, in other places; plain loops come to 2^-6 (tests/kernels/stand_in). What
/// uses a wrong head, mask or scale is off by more.
constexpr double kBound = 0x1p-4;
/// lse is formed in fp32 by both. As a logarithm it may be near 0: then the bound is absolute.
constexpr double kStatisticBound = 0x1p-10;
constexpr double kStatisticLeast = 1.0;

/// Numbers in [-1, 1) around `middle` that depend on place and seed alone.
void fill(const ExecSpace& exec, const DeviceView<Bf16, 2>& x, std::int64_t first_column,
          std::int64_t columns, std::uint32_t seed, float middle) {
  const auto rows = static_cast<std::int64_t>(x.extent(0));
  Kokkos::parallel_for(
      "pleat::kernels::attention_check_fill",
      Kokkos::RangePolicy<ExecSpace>(exec, 0, rows * columns),
      KOKKOS_LAMBDA(const std::int64_t i) {
        std::uint32_t bits = static_cast<std::uint32_t>(i) * 0x9e3779b9U + seed;
        bits = (bits ^ (bits >> 16)) * 0x85ebca6bU;
        bits = (bits ^ (bits >> 13)) * 0xc2b2ae35U;
        const float uniform = static_cast<float>(bits >> 8) * 0x1p-23F - 1.0F;
        x(i / columns, first_column + i % columns) = Bf16(middle + uniform);
      });
}

/// \brief The arrays, once for the library and once for the products. Queries and keys lean to
/// opposite sides, so that scores and lse are negative, which has gone wrong before.
struct Sample {
  CheckedCase checked;
  std::int64_t q_size, kv_size, row_size;
  float scale;
  DeviceView<Bf16, 2> qkv_TQ, expected_o_TO;
  DeviceView<float, 2> expected_lse_HT;
  DeviceView<Bf16, 2> o_TO;     ///< from here on forward only
  DeviceView<float, 2> lse_HT;
  DeviceView<Bf16, 2> do_TO, dqkv_TQ, expected_dqkv_TQ;  ///< backward only
  DeviceView<float, 2> delta_HT;

  Sample(const ExecSpace& exec, const CheckedCase& the_case)
      : checked(the_case),
        q_size(checked.heads * checked.head_dim),
        kv_size(checked.kv_heads * checked.head_dim),
        row_size(q_size + 2 * kv_size),
        scale(1.0F / std::sqrt(static_cast<float>(checked.head_dim))),
        qkv_TQ(rows(row_size)),
        expected_o_TO(rows(q_size)),
        expected_lse_HT(statistic(lse_stride())) {
    if (checked.backward) {
      do_TO = rows(q_size), delta_HT = statistic(checked.sequence);
      dqkv_TQ = rows(row_size), expected_dqkv_TQ = rows(row_size);
    } else {
      o_TO = rows(q_size), lse_HT = statistic(lse_stride());
    }
    Kokkos::fence("pleat::kernels::attention_check: arrays are cleared");
    fill(exec, qkv_TQ, 0, q_size, 1, 1.0F);
    fill(exec, qkv_TQ, q_size, kv_size, 2, -1.0F);
    fill(exec, qkv_TQ, q_size + kv_size, kv_size, 3, 0.0F);
    if (checked.backward) fill(exec, do_TO, 0, q_size, 4, 0.0F);
  }

  DeviceView<Bf16, 2> rows(std::int64_t columns) const {
    return DeviceView<Bf16, 2>("pleat::kernels::attention_check", checked.sequence, columns);
  }
  DeviceView<float, 2> statistic(std::int64_t columns) const {
    return DeviceView<float, 2>("pleat::kernels::attention_check", checked.heads, columns);
  }
  std::int64_t lse_stride() const {
    return checked.lse_apart ? 2 * checked.sequence : checked.sequence;
  }
  AttentionShape shape() const {
    return fused_attention_shape(1, checked.sequence, checked.heads, checked.kv_heads,
                                 checked.head_dim);
  }
  GraphShape graph_shape() const {
    GraphShape graph{.backward = checked.backward,
                     .sequence = checked.sequence,
                     .heads = checked.heads,
                     .kv_heads = checked.kv_heads,
                     .head_dim = checked.head_dim,
                     .q_stride = row_size,
                     .kv_stride = row_size,
                     .o_stride = q_size,
                     .lse_stride = lse_stride(),
                     .scale = scale};
    if (checked.backward) graph.do_stride = q_size;
    if (checked.backward) graph.dq_stride = graph.dkv_stride = row_size;
    return graph;
  }
  /// Backward, the library is handed the products' o and lse.
  GraphArrays arrays() const {
    GraphArrays arrays{.q = qkv_TQ.data(),
                       .k = qkv_TQ.data() + q_size,
                       .v = qkv_TQ.data() + q_size + kv_size,
                       .o = o_TO.data(),
                       .lse = lse_HT.data()};
    if (!checked.backward) return arrays;
    arrays.o = expected_o_TO.data();
    arrays.lse = expected_lse_HT.data();
    arrays.d_o = do_TO.data();
    arrays.dq = dqkv_TQ.data();
    arrays.dk = dqkv_TQ.data() + q_size;
    arrays.dv = dqkv_TQ.data() + q_size + kv_size;
    return arrays;
  }
};

void run_products(const ExecSpace& exec, const Sample& x) {
  Arena scratch("pleat::kernels::attention_check");
  products_attention_forward<Bf16>(exec, x.shape(), x.scale, x.qkv_TQ, x.qkv_TQ, scratch,
                                   x.expected_o_TO, x.expected_lse_HT);
  if (x.checked.backward) {
    attention_delta<Bf16>(exec, x.checked.heads, x.checked.head_dim, x.expected_o_TO, x.do_TO,
                          x.delta_HT);
    products_attention_backward<Bf16>(exec, x.shape(), x.scale, x.qkv_TQ, x.qkv_TQ,
                                      x.expected_lse_HT, x.delta_HT, x.do_TO, scratch,
                                      x.expected_dqkv_TQ, x.expected_dqkv_TQ);
  }
  exec.fence("pleat::kernels::attention_check: scratch memory is given back");
}

struct Difference {
  const char* name;
  double apart, bound;
};

std::vector<Difference> compare(const ExecSpace& exec, const Sample& x) {
  const auto columns = [&](const auto& actual, const auto& expected, std::int64_t first,
                           std::int64_t count) {
    return largest_difference<Bf16>(exec, {actual, first, count}, {expected, first, count},
                                    std::numeric_limits<double>::min());
  };
  if (!x.checked.backward) {
    return {{"o", columns(x.o_TO, x.expected_o_TO, 0, x.q_size), kBound},
            {"lse",
             largest_difference<float>(exec, {x.lse_HT, 0, x.checked.sequence},
                                       {x.expected_lse_HT, 0, x.checked.sequence},
                                       kStatisticLeast),
             kStatisticBound}};
  }
  const auto gradients = [&](std::int64_t first, std::int64_t count) {
    return columns(x.dqkv_TQ, x.expected_dqkv_TQ, first, count);
  };
  return {{"dq", gradients(0, x.q_size), kBound},
          {"dk", gradients(x.q_size, x.kv_size), kBound},
          {"dv", gradients(x.q_size + x.kv_size, x.kv_size), kBound}};
}

}  // namespace

template <class T>
double largest_difference(const ExecSpace& exec, const Columns<T>& actual,
                          const Columns<T>& expected, double least) {
  const auto x = actual.rows, y = expected.rows;
  const std::int64_t x_first = actual.first, y_first = expected.first;
  const std::int64_t columns = actual.count, rows = x.extent_int(0);
  const std::int64_t tiles = (rows + kTileRows - 1) / kTileRows;
  double largest = 0.0;
  Kokkos::parallel_reduce(
      "pleat::kernels::attention_check",
      Kokkos::RangePolicy<ExecSpace>(exec, 0, tiles * columns),
      KOKKOS_LAMBDA(const std::int64_t item, double& result) {
        const std::int64_t column = item % columns;
        const std::int64_t begin = item / columns * kTileRows;
        const std::int64_t end = Kokkos::min(begin + kTileRows, rows);
        double high = least, apart = 0.0;
        for (std::int64_t i = begin; i < end; ++i) {
          const double a(x(i, x_first + column)), b(y(i, y_first + column));
          // A maximum may pass over what is not a number.
          const bool finite = Kokkos::isfinite(a) && Kokkos::isfinite(b);
          high = Kokkos::max(high, finite ? Kokkos::abs(b) : 0.0);
          apart = Kokkos::max(apart, finite ? Kokkos::abs(a - b)
                                            : Kokkos::Experimental::infinity_v<double>);
        }
        result = Kokkos::max(result, apart / high);
      },
      Kokkos::Max<double>(largest));
  exec.fence("pleat::kernels::attention_check");
  return largest;
}

template double largest_difference(const ExecSpace&, const Columns<Bf16>&,
                                   const Columns<Bf16>&, double);
template double largest_difference(const ExecSpace&, const Columns<float>&,
                                   const Columns<float>&, double);

CheckedCase checked_case(const GraphShape& shape) {
  return {.backward = shape.backward,
          .lse_apart = shape.lse_stride != shape.sequence,
          .sequence = std::min(shape.sequence, kMostRows),
          .heads = shape.heads,
          .kv_heads = shape.kv_heads,
          .head_dim = shape.head_dim};
}

std::string check_attention(
    const ExecSpace& exec, const CheckedCase& checked,
    const std::function<std::string(const GraphShape&, const GraphArrays&)>& run) {
  const Sample sample(exec, checked);
  run_products(exec, sample);
  const std::string failure = run(sample.graph_shape(), sample.arrays());
  if (!failure.empty()) return failure;
  for (const Difference& difference : compare(exec, sample)) {
    // Not a number is no agreement either.
    if (difference.apart <= difference.bound) continue;
    return fmt::format("{} is off by {:.2g} of the largest elements, more than {:.2g}",
                       difference.name, difference.apart, difference.bound);
  }
  return "";
}

}  // namespace pleat::kernels

#endif
