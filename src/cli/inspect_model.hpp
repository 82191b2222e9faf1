// SPDX-License-Identifier: Apache-2.0
#pragma once

/// \file
/// \brief What is in checkpoints or in safetensors files, every byte read.

#include <string>

namespace pleat::cli {

struct InspectOptions {
  std::string file;
  std::string dataset = "tokens";
  bool tensors = false;
  bool statistics = false;
  bool deck = false;
  bool history = false;
  bool json = false;
};

/// \brief Prints provenance and tensors, and checks all checksums.
/// \throws InputError PL0925 where it is damaged, after all that could be read is shown
void inspect_checkpoint(const std::string& path, const InspectOptions& options);

/// \brief Prints the checkpoints of a run folder and the newest usable one in full.
/// \return false where the folder has none \throws InputError PL0925 one is damaged
bool inspect_run(const std::string& folder, const InspectOptions& options);

/// \brief Prints the tensors of one file or of a model folder, and compares those of a
/// folder with its config.json. \throws InputError PL04xx
void inspect_safetensors(const std::string& path, const InspectOptions& options);

/// \brief Prints groups, data sets and attributes of any HDF5 file.
void inspect_hdf5(const std::string& path);

}  // namespace pleat::cli
