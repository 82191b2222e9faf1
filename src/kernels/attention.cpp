// SPDX-License-Identifier: Apache-2.0
#include "pleat/kernels/attention.hpp"

#include <algorithm>
#include <type_traits>

#include "attention_cudnn.hpp"
#include "attention_host.hpp"
#include "attention_portable.hpp"
#include "attention_products.hpp"
#include "gemm_cublaslt.hpp"
#include "gemm_host.hpp"
#include "pleat/base/error.hpp"

namespace pleat::kernels {
namespace {

/// One past the last row that the shape touches.
std::int64_t end_row(const AttentionShape& shape, std::int64_t first, std::int64_t stride,
                     std::int64_t count) {
  return shape.batch == 0 || count == 0 ? 0 : first + (shape.batch - 1) * stride + count;
}

void require_shape(const AttentionShape& shape) {
  PLEAT_ASSERT(shape.kv_heads > 0 && shape.heads % shape.kv_heads == 0,
               "{} query heads over {} key/value heads", shape.heads, shape.kv_heads);
  PLEAT_ASSERT(shape.diagonal >= 0 && (shape.keys > 0 || shape.queries == 0),
               "queries without keys: {} keys, diagonal {}", shape.keys, shape.diagonal);
  // Else two sequences would write the same rows.
  PLEAT_ASSERT(shape.batch <= 1 || (shape.query_stride >= shape.queries &&
                                    shape.key_stride >= shape.keys),
               "sequences overlap: {} queries every {} rows, {} keys every {}",
               shape.queries, shape.query_stride, shape.keys, shape.key_stride);
}

template <class View>
void require_queries(const AttentionShape& shape, const char* name, const View& rows) {
  const std::int64_t end =
      end_row(shape, shape.first_query, shape.query_stride, shape.queries);
  PLEAT_ASSERT(
      rows.extent_int(0) >= end && rows.extent_int(1) >= shape.heads * shape.head_dim,
      "{} [{}, {}], expected at least [{}, {}]", name, rows.extent(0), rows.extent(1),
      end, shape.heads * shape.head_dim);
}

template <class View>
void require_keys(const AttentionShape& shape, const char* name, const View& rows) {
  const std::int64_t end = end_row(shape, shape.first_key, shape.key_stride, shape.keys);
  const std::int64_t columns =
      std::max(shape.k_column, shape.v_column) + shape.kv_heads * shape.head_dim;
  PLEAT_ASSERT(rows.extent_int(0) >= end && rows.extent_int(1) >= columns,
               "{} [{}, {}], expected at least [{}, {}]", name, rows.extent(0),
               rows.extent(1), end, columns);
}

template <class View>
void require_statistic(const AttentionShape& shape, const char* name,
                       const View& values_HT) {
  const std::int64_t end =
      end_row(shape, shape.first_query, shape.query_stride, shape.queries);
  PLEAT_ASSERT(values_HT.extent_int(0) == shape.heads && values_HT.extent_int(1) >= end,
               "{} [{}, {}], expected [{}, at least {}]", name, values_HT.extent(0),
               values_HT.extent(1), shape.heads, end);
}

/// A diagonal beyond the last key means no more than one at it.
AttentionShape with_near_diagonal(AttentionShape shape) {
  shape.diagonal = std::min(shape.diagonal, shape.keys);
  return shape;
}

}  // namespace

AttentionShape fused_attention_shape(std::int64_t batch, std::int64_t sequence,
                                     std::int64_t heads, std::int64_t kv_heads,
                                     std::int64_t head_dim) {
  return {.batch = batch,
          .queries = sequence,
          .keys = sequence,
          .heads = heads,
          .kv_heads = kv_heads,
          .head_dim = head_dim,
          .query_stride = sequence,
          .key_stride = sequence,
          .k_column = heads * head_dim,
          .v_column = (heads + kv_heads) * head_dim};
}

template <class T>
void attention_forward(const ExecSpace& exec, const AttentionShape& shape,
                       Accumulator<T> scale, Pieces pieces,
                       const DeviceView<const T, 2>& q_TQ,
                       const DeviceView<const T, 2>& kv_UR, Arena& scratch,
                       const DeviceView<T, 2>& o_TO,
                       const DeviceView<Accumulator<T>, 2>& lse_HT) {
  require_shape(shape);
  require_queries(shape, "queries", q_TQ);
  require_keys(shape, "keys and values", kv_UR);
  require_queries(shape, "attention output", o_TO);
  require_statistic(shape, "lse", lse_HT);
  const AttentionShape near = with_near_diagonal(shape);
#if defined(PLEAT_HOST_GEMM)
  host_attention_forward<T>(exec, near, scale, pieces, q_TQ, kv_UR, scratch, o_TO,
                            lse_HT);
#else
#if defined(PLEAT_CUBLASLT_GEMM)
  if (pieces == Pieces::kFirst) {
#if defined(PLEAT_CUDNN_ATTENTION)
    if constexpr (std::is_same_v<T, Bf16>) {
      if (cudnn_attention_forward(exec, near, scale, q_TQ, kv_UR, o_TO, lse_HT)) return;
    }
#endif
    return products_attention_forward<T>(exec, near, scale, q_TQ, kv_UR, scratch, o_TO,
                                         lse_HT);
  }
#endif
  static_cast<void>(scratch);
  portable_attention_forward<T>(exec, near, scale, pieces, q_TQ, kv_UR, o_TO, lse_HT);
#endif
}

template <class T>
void attention_delta(const ExecSpace& exec, std::int64_t heads, std::int64_t head_dim,
                     const DeviceView<const T, 2>& o_TO,
                     const DeviceView<const T, 2>& do_TO,
                     const DeviceView<Accumulator<T>, 2>& delta_HT) {
  const auto rows = static_cast<std::int64_t>(o_TO.extent(0));
  PLEAT_ASSERT(o_TO.extent_int(1) == heads * head_dim && do_TO.extent_int(0) == rows &&
                   do_TO.extent_int(1) == heads * head_dim &&
                   delta_HT.extent_int(0) == heads && delta_HT.extent_int(1) == rows,
               "output [{}, {}], its gradient [{}, {}], delta [{}, {}], {} heads of {}",
               rows, o_TO.extent(1), do_TO.extent(0), do_TO.extent(1), delta_HT.extent(0),
               delta_HT.extent(1), heads, head_dim);
  Kokkos::parallel_for(
      "pleat::kernels::attention_delta",
      Kokkos::RangePolicy<ExecSpace>(exec, 0, rows * heads),
      KOKKOS_LAMBDA(const std::int64_t item) {
        const std::int64_t row = item / heads;
        const std::int64_t head = item % heads;
        Accumulator<T> sum = 0;
        for (std::int64_t i = head * head_dim; i < (head + 1) * head_dim; ++i) {
          sum += Accumulator<T>(o_TO(row, i)) * Accumulator<T>(do_TO(row, i));
        }
        delta_HT(head, row) = sum;
      });
}

template <class T>
void attention_backward(const ExecSpace& exec, const AttentionShape& shape,
                        Accumulator<T> scale, Pieces pieces, bool accumulate_keys,
                        const DeviceView<const T, 2>& q_TQ,
                        const DeviceView<const T, 2>& kv_UR,
                        const DeviceView<const T, 2>& o_TO,
                        const DeviceView<const Accumulator<T>, 2>& lse_HT,
                        const DeviceView<const Accumulator<T>, 2>& delta_HT,
                        const DeviceView<const T, 2>& do_TO, Arena& scratch,
                        const DeviceView<T, 2>& dq_TQ, const DeviceView<T, 2>& dkv_UR) {
  require_shape(shape);
  require_queries(shape, "queries", q_TQ);
  require_keys(shape, "keys and values", kv_UR);
  require_queries(shape, "attention output", o_TO);
  require_statistic(shape, "lse", lse_HT);
  require_statistic(shape, "delta", delta_HT);
  require_queries(shape, "gradient of the output", do_TO);
  require_queries(shape, "gradient of the queries", dq_TQ);
  require_keys(shape, "gradient of keys and values", dkv_UR);
  const AttentionShape near = with_near_diagonal(shape);
#if defined(PLEAT_HOST_GEMM)
  const BackwardTasks tasks = choose_backward_tasks(near, exec.concurrency());
  host_attention_backward<T>(exec, near, scale, pieces, accumulate_keys, q_TQ, kv_UR,
                             lse_HT, delta_HT, do_TO, tasks, scratch, dq_TQ, dkv_UR);
#else
#if defined(PLEAT_CUBLASLT_GEMM)
  if (pieces == Pieces::kFirst && !accumulate_keys) {
#if defined(PLEAT_CUDNN_ATTENTION)
    if constexpr (std::is_same_v<T, Bf16>) {
      if (cudnn_attention_backward(exec, near, scale, q_TQ, kv_UR, o_TO, lse_HT, do_TO,
                                   dq_TQ, dkv_UR)) {
        return;
      }
    }
#endif
    return products_attention_backward<T>(exec, near, scale, q_TQ, kv_UR, lse_HT, delta_HT,
                                          do_TO, scratch, dq_TQ, dkv_UR);
  }
#endif
  static_cast<void>(scratch);
  portable_attention_backward<T>(exec, near, scale, pieces, accumulate_keys, q_TQ, kv_UR,
                                 lse_HT, delta_HT, do_TO, dq_TQ, dkv_UR);
#endif
}

#define PLEAT_INSTANTIATE(T)                                                             \
  template void attention_forward<T>(                                                    \
      const ExecSpace&, const AttentionShape&, Accumulator<T>, Pieces,                   \
      const DeviceView<const T, 2>&, const DeviceView<const T, 2>&, Arena&,              \
      const DeviceView<T, 2>&, const DeviceView<Accumulator<T>, 2>&);                    \
  template void attention_delta<T>(                                                      \
      const ExecSpace&, std::int64_t, std::int64_t, const DeviceView<const T, 2>&,       \
      const DeviceView<const T, 2>&, const DeviceView<Accumulator<T>, 2>&);              \
  template void attention_backward<T>(                                                   \
      const ExecSpace&, const AttentionShape&, Accumulator<T>, Pieces, bool,             \
      const DeviceView<const T, 2>&, const DeviceView<const T, 2>&,                      \
      const DeviceView<const T, 2>&, const DeviceView<const Accumulator<T>, 2>&,         \
      const DeviceView<const Accumulator<T>, 2>&, const DeviceView<const T, 2>&, Arena&, \
      const DeviceView<T, 2>&, const DeviceView<T, 2>&);
PLEAT_INSTANTIATE(float)
PLEAT_INSTANTIATE(double)
PLEAT_INSTANTIATE(Bf16)
#undef PLEAT_INSTANTIATE

}  // namespace pleat::kernels
