// SPDX-License-Identifier: Apache-2.0
#pragma once

/// \file
/// \brief A file that all ranks of a communicator write or read through MPI-IO.

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include <mpi.h>

#include "file_runs.hpp"
#include "pleat/io/checkpoint.hpp"

namespace pleat::io {

/// \brief Throws InputErrors (PL0302) when reading, IoErrors (PL0303) when writing, on the
/// rank that MPI tells of the failure.
class MpiFile {
 public:
  enum class Access { kCreate, kWrite, kRead };

  /// \brief Collective.
  MpiFile(const std::string& path, MPI_Comm comm, Access access, const CheckpointHints& hints);
  /// \brief Collective.
  ~MpiFile();
  MpiFile(const MpiFile&) = delete;
  MpiFile& operator=(const MpiFile&) = delete;

  /// \brief Moves the runs, each by itself or, reading, with close neighbours; not collective.
  void transfer(const std::vector<FileRun>& runs);
  /// \brief Moves the runs of all ranks in one call; collective, also where `runs` is empty.
  /// \param runs  none overlaps another
  void transfer_together(std::vector<FileRun> runs);
  /// \brief To be called between transfer_together() and transfer(); collective.
  void end_together();
  /// \brief How many bytes of the file MPI-IO handles in one turn of transfer_together().
  std::int64_t window() const { return window_; }
  /// \brief Brings what this rank wrote to the disk; collective.
  void sync();
  /// \brief Collective.
  void close();

 private:
  void check(int code, const char* what) const;
  void transfer_run(const FileRun& run);
  void read_neighbours(std::span<const FileRun> runs);
  void set_view(MPI_Datatype type);
  void measure_window();

  std::string path_;
  Access access_;
  int ranks_ = 1;
  MPI_File file_ = MPI_FILE_NULL;
  std::int64_t window_ = 0;
  std::vector<std::byte> between_;  ///< neighbours and what lies between them
};

}  // namespace pleat::io
