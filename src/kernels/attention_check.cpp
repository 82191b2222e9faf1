// SPDX-License-Identifier: Apache-2.0
//
// Legend: as attention.hpp; one sequence of kSequence rows in a fused projection.
#include "attention_check.hpp"

#include "attention_cudnn.hpp"

#if defined(PLEAT_CUDNN_ATTENTION)

#include <cmath>
#include <limits>
#include <vector>

#include <fmt/format.h>

#include "attention_products.hpp"
#include "pleat/base/arena.hpp"

namespace pleat::kernels {
namespace {

/// Some tiles of queries and of keys.
constexpr std::int64_t kSequence = 256;
/// Of an array's largest element: both round probabilities, their gradients and the result to
/// bf16, 2^-9 each, in other places. What uses a wrong head, mask or scale is off by more.
constexpr double kBound = 0x1p-5;
/// lse is formed in fp32 by both.
constexpr double kStatisticBound = 0x1p-10;

/// Numbers in [-1, 1) around `middle` that depend on place and seed alone.
void fill(const ExecSpace& exec, const DeviceView<Bf16, 2>& x, std::int64_t first_column,
          std::int64_t columns, std::uint32_t seed, float middle) {
  Kokkos::parallel_for(
      "pleat::kernels::attention_check_fill",
      Kokkos::RangePolicy<ExecSpace>(exec, 0, kSequence * columns),
      KOKKOS_LAMBDA(const std::int64_t i) {
        std::uint32_t bits = static_cast<std::uint32_t>(i) * 0x9e3779b9U + seed;
        bits = (bits ^ (bits >> 16)) * 0x85ebca6bU;
        bits = (bits ^ (bits >> 13)) * 0xc2b2ae35U;
        const float uniform = static_cast<float>(bits >> 8) * 0x1p-23F - 1.0F;
        x(i / columns, first_column + i % columns) = Bf16(middle + uniform);
      });
}

template <class T>
struct Columns {
  DeviceView<T, 2> rows;
  std::int64_t first, count;
};

/// The largest difference as a share of the largest expected element; infinite where one is
/// not finite.
template <class T>
double difference(const ExecSpace& exec, const Columns<T>& actual,
                  const Columns<T>& expected) {
  const auto x = actual.rows, y = expected.rows;
  const std::int64_t first = actual.first, count = actual.count;
  const auto rows = static_cast<std::int64_t>(x.extent(0));
  double largest = 0.0, apart = 0.0;
  Kokkos::parallel_reduce(
      "pleat::kernels::attention_check",
      Kokkos::RangePolicy<ExecSpace>(exec, 0, rows * count),
      KOKKOS_LAMBDA(const std::int64_t i, double& high, double& off) {
        const double a(x(i / count, first + i % count));
        const double b(y(i / count, first + i % count));
        high = Kokkos::max(high, Kokkos::abs(b));
        off = Kokkos::max(off, Kokkos::isfinite(a) ? Kokkos::abs(a - b)
                                                   : Kokkos::Experimental::infinity_v<double>);
      },
      Kokkos::Max<double>(largest), Kokkos::Max<double>(apart));
  exec.fence("pleat::kernels::attention_check");
  return apart / largest;
}

/// \brief The arrays, once for the library and once for the products. Queries and keys lean to
/// opposite sides, so that scores and lse are negative, which has gone wrong before.
struct Sample {
  CheckedCase checked;
  std::int64_t q_size, kv_size, row_size;
  float scale;
  DeviceView<Bf16, 2> qkv_TQ, do_TO;
  DeviceView<Bf16, 2> o_TO, expected_o_TO, dqkv_TQ, expected_dqkv_TQ;
  DeviceView<float, 2> lse_HT, expected_lse_HT, delta_HT;

  Sample(const ExecSpace& exec, const CheckedCase& the_case)
      : checked(the_case),
        q_size(checked.heads * checked.head_dim),
        kv_size(checked.kv_heads * checked.head_dim),
        row_size(q_size + 2 * kv_size),
        scale(1.0F / std::sqrt(static_cast<float>(checked.head_dim))) {
    const auto rows = [](std::int64_t columns) {
      return DeviceView<Bf16, 2>("pleat::kernels::attention_check", kSequence, columns);
    };
    const auto statistic = [&](std::int64_t columns) {
      return DeviceView<float, 2>("pleat::kernels::attention_check", checked.heads, columns);
    };
    qkv_TQ = rows(row_size), do_TO = rows(q_size);
    o_TO = rows(q_size), expected_o_TO = rows(q_size);
    dqkv_TQ = rows(row_size), expected_dqkv_TQ = rows(row_size);
    const std::int64_t lse_columns = checked.lse_apart ? 2 * kSequence : kSequence;
    lse_HT = statistic(lse_columns), expected_lse_HT = statistic(lse_columns);
    delta_HT = statistic(kSequence);
    Kokkos::fence("pleat::kernels::attention_check: arrays are cleared");
    fill(exec, qkv_TQ, 0, q_size, 1, 1.0F);
    fill(exec, qkv_TQ, q_size, kv_size, 2, -1.0F);
    fill(exec, qkv_TQ, q_size + kv_size, kv_size, 3, 0.0F);
    fill(exec, do_TO, 0, q_size, 4, 0.0F);
  }

  AttentionShape shape() const {
    return fused_attention_shape(1, kSequence, checked.heads, checked.kv_heads,
                                 checked.head_dim);
  }
  GraphShape graph_shape() const {
    GraphShape graph{.backward = checked.backward,
                     .sequence = kSequence,
                     .heads = checked.heads,
                     .kv_heads = checked.kv_heads,
                     .head_dim = checked.head_dim,
                     .q_stride = row_size,
                     .kv_stride = row_size,
                     .o_stride = q_size,
                     .lse_stride = static_cast<std::int64_t>(lse_HT.stride(0)),
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

struct Finding {
  const char* name;
  double apart, bound;
};

std::vector<Finding> compare(const ExecSpace& exec, const Sample& x) {
  if (!x.checked.backward) {
    return {{"o",
             difference<Bf16>(exec, {x.o_TO, 0, x.q_size}, {x.expected_o_TO, 0, x.q_size}),
             kBound},
            {"lse",
             difference<float>(exec, {x.lse_HT, 0, kSequence},
                               {x.expected_lse_HT, 0, kSequence}),
             kStatisticBound}};
  }
  const auto columns = [&](std::int64_t first, std::int64_t count) {
    return difference<Bf16>(exec, {x.dqkv_TQ, first, count},
                            {x.expected_dqkv_TQ, first, count});
  };
  return {{"dq", columns(0, x.q_size), kBound},
          {"dk", columns(x.q_size, x.kv_size), kBound},
          {"dv", columns(x.q_size + x.kv_size, x.kv_size), kBound}};
}

}  // namespace

CheckedCase checked_case(const GraphShape& shape) {
  return {.backward = shape.backward,
          .lse_apart = shape.lse_stride != shape.sequence,
          .heads = shape.heads,
          .kv_heads = shape.kv_heads,
          .head_dim = shape.head_dim};
}

AttentionCheck check_attention(
    const ExecSpace& exec, const CheckedCase& checked,
    const std::function<bool(const GraphShape&, const GraphArrays&)>& run) {
  const Sample sample(exec, checked);
  run_products(exec, sample);
  if (!run(sample.graph_shape(), sample.arrays())) {
    return {.agrees = false, .finding = "it refuses the problem by which it is checked"};
  }
  for (const Finding& finding : compare(exec, sample)) {
    // Not a number is no agreement either.
    if (!(finding.apart <= finding.bound)) {
      return {.agrees = false, .finding = fmt::format(
                  "{} is off by {:.2g} of its largest element, more than {:.2g}",
                  finding.name, finding.apart, finding.bound)};
    }
  }
  return {.agrees = true, .finding = ""};
}

}  // namespace pleat::kernels

#endif
