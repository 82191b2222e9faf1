// SPDX-License-Identifier: Apache-2.0
#pragma once

/// \file
/// \brief Fused attention by cuDNN in bf16, for whole causal sequences (docs/adr/0019).
///
/// PLEAT_CUDNN_ATTENTION is defined where cuDNN's headers were found for a build with CUDA;
/// PLEAT_CUDNN_STAND_IN compiles the same code over a stand-in (tests/kernels/stand_in).

#include "pleat/kernels/attention.hpp"

#if (defined(KOKKOS_ENABLE_CUDA) && defined(PLEAT_HAVE_CUDNN)) || \
    defined(PLEAT_CUDNN_STAND_IN)
#define PLEAT_CUDNN_ATTENTION
#endif

namespace pleat::kernels {

/// \brief As products_attention_forward(), where cuDNN does that: it is on this machine and
/// wanted, has a graph for this shape that needs not too much memory, and its results agreed
/// with those of the products when such a shape was first seen. A shape's first call plans,
/// allocates and waits; later ones do not.
/// \return false where nothing was done: the products are to do it
/// \throws InternalError PL0815 when cuDNN fails while it runs, PL0816 where its memory cannot
/// be had; InputError PL0108
bool cudnn_attention_forward(const ExecSpace& exec, const AttentionShape& shape,
                             float scale, const DeviceView<const Bf16, 2>& q_TQ,
                             const DeviceView<const Bf16, 2>& kv_UR,
                             const DeviceView<Bf16, 2>& o_TO,
                             const DeviceView<float, 2>& lse_HT);

/// \brief As products_attention_backward(), in the same cases.
bool cudnn_attention_backward(const ExecSpace& exec, const AttentionShape& shape,
                              float scale, const DeviceView<const Bf16, 2>& q_TQ,
                              const DeviceView<const Bf16, 2>& kv_UR,
                              const DeviceView<const Bf16, 2>& o_TO,
                              const DeviceView<const float, 2>& lse_HT,
                              const DeviceView<const Bf16, 2>& do_TO,
                              const DeviceView<Bf16, 2>& dq_TQ,
                              const DeviceView<Bf16, 2>& dkv_UR);

/// \brief Whether the products form all attention, whatever cuDNN could: at first where the
/// environment's PLEAT_ATTENTION is "products". \throws InputError PL0108 where it is neither
/// that nor empty
bool is_attention_by_products();
void set_attention_by_products(bool value);

}  // namespace pleat::kernels
