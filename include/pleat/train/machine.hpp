// SPDX-License-Identifier: Apache-2.0
#pragma once

/// \file
/// \brief What the program runs on and how fast that is.

#include <string>

#include "pleat/base/types.hpp"
#include "pleat/comm/grid_shape.hpp"

namespace pleat::train {

/// \brief Version, commit, compiler, Kokkos and back end, in one line.
std::string build_description();

/// \brief Ranks, execution space, its concurrency.
std::string describe_machine(int ranks);

/// \brief "pp=1 dp=2 cp=1 tp=2 / pp=1 edp=1 ep=4 etp=1".
std::string describe_grid(const comm::GridShape& shape);

/// \brief FLOP/s of a square GEMM large enough to run at speed: what the MFU in metrics.csv
/// is relative to. Takes a fraction of a second and synchronises the host.
template <class T>
double measure_gemm_rate(const ExecSpace& exec);

}  // namespace pleat::train
