// SPDX-License-Identifier: Apache-2.0
#pragma once

/// \file
/// \brief Makes the program's command line and its commands.
///
/// All objects of CLI::App are made by program.cpp, the only source that compiles its
/// constructor. It knows nothing of Kokkos, so it is plain C++ in builds for AMD GPUs,
/// too: in HIP, clang 16 gives the members that CLI::App initialises with `new` the
/// device's `operator delete`.

#include <memory>
#include <string>

#include <CLI/CLI.hpp>

namespace pleat::cli {

std::unique_ptr<CLI::App> make_program(std::string description, std::string name);

/// \brief A new command of the program, which owns it.
CLI::App* add_command(CLI::App& program, std::string name, std::string description);

}  // namespace pleat::cli
