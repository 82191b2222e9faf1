// SPDX-License-Identifier: Apache-2.0
#pragma once

/// \file
/// \brief Short runs of all ranks of one machine, gathered in memory that they share, so
/// that the file sees long ones.
///
/// A window of the file at a time: all ranks put their runs into it, from where each
/// writes an equal part; or the first one reads it, in one stream that the system can
/// read ahead for, and all take their runs out of it. The memory has two halves: while
/// the file works on one window, the ranks copy the runs of the next.
///
///     reading   file -> half 0 | half 0 -> ranks           | half 1 -> ranks
///                              | file -> half 1            | file -> half 0

#include <exception>
#include <functional>

#include "file_runs.hpp"
#include "host_stage.hpp"
#include "transfer.hpp"

namespace pleat::io {

/// \brief Moves bytes between the file and memory; called on a thread of its own.
using MoveBytes = std::function<void(const FileRun&)>;

/// \brief Moves the short runs of all ranks. All ranks of the stage call it, on any
/// thread; it calls no MPI. Where a rank fails, all end. \param earlier  what has failed
/// on this rank already, or nothing \return what failed on this rank, or nothing
std::exception_ptr read_staged(HostStage& stage, RoundMover& mover, const MoveBytes& read,
                               const std::exception_ptr& earlier);

/// \brief The same for writing.
/// \param read  what lies between the runs of a window that they do not fill
std::exception_ptr write_staged(HostStage& stage, RoundMover& mover,
                                const MoveBytes& read, const MoveBytes& write,
                                const std::exception_ptr& earlier);

}  // namespace pleat::io
