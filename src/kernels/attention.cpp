// SPDX-License-Identifier: Apache-2.0
#include "pleat/kernels/attention.hpp"

#include "attention_host.hpp"
#include "attention_portable.hpp"
#include "gemm_host.hpp"
#include "pleat/base/error.hpp"

namespace pleat::kernels {
namespace {

template <class T>
void require_shapes(const AttentionShape& shape, const DeviceView<const T, 2>& qkv_TQ,
                    const DeviceView<const T, 2>& o_TO,
                    const DeviceView<const Accumulator<T>, 2>& lse_HT) {
  PLEAT_ASSERT(shape.kv_heads > 0 && shape.heads % shape.kv_heads == 0,
               "{} query heads over {} key/value heads", shape.heads, shape.kv_heads);
  PLEAT_ASSERT(qkv_TQ.extent_int(0) == shape.tokens() && qkv_TQ.extent_int(1) == shape.row_size(),
               "qkv [{}, {}], expected [{}, {}]", qkv_TQ.extent(0), qkv_TQ.extent(1),
               shape.tokens(), shape.row_size());
  PLEAT_ASSERT(o_TO.extent_int(0) == shape.tokens() &&
                   o_TO.extent_int(1) == shape.heads * shape.head_dim,
               "attention output [{}, {}], expected [{}, {}]", o_TO.extent(0), o_TO.extent(1),
               shape.tokens(), shape.heads * shape.head_dim);
  PLEAT_ASSERT(lse_HT.extent_int(0) == shape.heads && lse_HT.extent_int(1) == shape.tokens(),
               "lse [{}, {}], expected [{}, {}]", lse_HT.extent(0), lse_HT.extent(1),
               shape.heads, shape.tokens());
}

}  // namespace

template <class T>
void attention_forward(const ExecSpace& exec, const AttentionShape& shape, Accumulator<T> scale,
                       const DeviceView<const T, 2>& qkv_TQ, Arena& scratch,
                       const DeviceView<T, 2>& o_TO,
                       const DeviceView<Accumulator<T>, 2>& lse_HT) {
  require_shapes<T>(shape, qkv_TQ, o_TO, lse_HT);
#if defined(PLEAT_HOST_GEMM)
  host_attention_forward<T>(exec, shape, scale, qkv_TQ, scratch, o_TO, lse_HT);
#else
  static_cast<void>(scratch);
  portable_attention_forward<T>(exec, shape, scale, qkv_TQ, o_TO, lse_HT);
#endif
}

template <class T>
void attention_backward(const ExecSpace& exec, const AttentionShape& shape, Accumulator<T> scale,
                        const DeviceView<const T, 2>& qkv_TQ, const DeviceView<const T, 2>& o_TO,
                        const DeviceView<const Accumulator<T>, 2>& lse_HT,
                        const DeviceView<const T, 2>& do_TO, Arena& scratch,
                        const DeviceView<T, 2>& dqkv_TQ) {
  require_shapes<T>(shape, qkv_TQ, o_TO, lse_HT);
#if defined(PLEAT_HOST_GEMM)
  const BackwardTasks tasks = choose_backward_tasks(shape, exec.concurrency());
  host_attention_backward<T>(exec, shape, scale, qkv_TQ, o_TO, lse_HT, do_TO, tasks, scratch,
                             dqkv_TQ);
#else
  portable_attention_backward<T>(exec, shape, scale, qkv_TQ, o_TO, lse_HT, do_TO, scratch,
                                 dqkv_TQ);
#endif
}

#define PLEAT_INSTANTIATE(T)                                                                   \
  template void attention_forward<T>(const ExecSpace&, const AttentionShape&, Accumulator<T>,  \
                                     const DeviceView<const T, 2>&, Arena&,                    \
                                     const DeviceView<T, 2>&,                                  \
                                     const DeviceView<Accumulator<T>, 2>&);                    \
  template void attention_backward<T>(                                                         \
      const ExecSpace&, const AttentionShape&, Accumulator<T>, const DeviceView<const T, 2>&,  \
      const DeviceView<const T, 2>&, const DeviceView<const Accumulator<T>, 2>&,               \
      const DeviceView<const T, 2>&, Arena&, const DeviceView<T, 2>&);
PLEAT_INSTANTIATE(float)
PLEAT_INSTANTIATE(double)
#undef PLEAT_INSTANTIATE

}  // namespace pleat::kernels
