// SPDX-License-Identifier: Apache-2.0
#pragma once

/// \file
/// \brief Where a command writes: nothing is overwritten unasked, nothing is left half
/// done.

#include <string>

namespace pleat::cli {

/// \brief Checks that a file can be made at the path.
/// \throws InputError PL0920 it exists and force is off, PL0921 the folder is not there
/// or
///   cannot be written to
void require_free_file(const std::string& path, bool force);

/// \brief Whether a file of a model folder is one that `pleat convert` reads and writes:
/// config.json, weights and their index.
bool is_model_file(const std::string& name);

/// \brief A folder that appears when it is complete.
///
/// It is filled under a temporary name beside its place. Where the folder exists and is
/// not empty, force is needed; then the model files in it are replaced and others stay.
class OutputFolder {
 public:
  /// \throws InputError PL0920, PL0921
  OutputFolder(std::string path, bool force);
  /// \brief Without commit() the temporary folder is removed.
  ~OutputFolder();
  OutputFolder(const OutputFolder&) = delete;
  OutputFolder& operator=(const OutputFolder&) = delete;

  const std::string& work_folder() const { return work_; }
  /// \throws IoError PL0922
  void commit();

 private:
  void replace_model_files() const;

  std::string path_;
  std::string work_;
};

}  // namespace pleat::cli
