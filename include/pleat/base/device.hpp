// SPDX-License-Identifier: Apache-2.0
#pragma once

/// \file
/// \brief The device that the program computes on.

namespace pleat {

/// \brief In a build for GPUs: whether there is one, in words that name the cure. Before
/// Kokkos is initialised. \throws InputError PL0105
void require_device();

}  // namespace pleat
