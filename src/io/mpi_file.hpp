// SPDX-License-Identifier: Apache-2.0
#pragma once

/// \file
/// \brief A file that all ranks of a communicator write or read through MPI-IO.

#include <cstdint>
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

  /// \brief Moves each run by itself; not collective.
  void transfer(const std::vector<FileRun>& runs);
  /// \brief Moves the runs of all ranks at once, gathered by MPI-IO; collective, also where `runs`
  /// is empty.
  /// \param runs  none overlaps another
  void transfer_together(std::vector<FileRun> runs);
  /// \brief To be called between transfer_together() and transfer(); collective.
  void end_together();
  /// \brief How many bytes of the file one call of transfer_together() can handle.
  std::int64_t window() const { return window_; }
  /// \brief Brings what this rank wrote to the disk; collective.
  void sync();
  /// \brief Collective.
  void close();

 private:
  void check(int code, const char* what) const;
  void move(const FileRun& run);
  void set_view(MPI_Datatype type);
  void measure_window();

  std::string path_;
  Access access_;
  MPI_Comm comm_;
  int ranks_ = 1;
  MPI_File file_ = MPI_FILE_NULL;
  std::int64_t window_ = 0;
};

}  // namespace pleat::io
