// SPDX-License-Identifier: Apache-2.0
#pragma once

/// \file
/// \brief The folder of a run and what lies where in it.

#include <cstdint>
#include <string>

#include "pleat/base/log.hpp"

namespace pleat::train {

/// \brief OUTPUT/{.lock, deck.toml, run.log, metrics.csv, checkpoints/, gradients/}.
class RunFolder {
 public:
  explicit RunFolder(std::string path) : path_(std::move(path)) {}

  std::string lock() const { return path_ + "/.lock"; }
  std::string deck() const { return path_ + "/deck.toml"; }
  std::string log() const { return path_ + "/run.log"; }
  std::string metrics() const { return path_ + "/metrics.csv"; }
  std::string checkpoints() const { return path_ + "/checkpoints"; }
  std::string gradients() const { return path_ + "/gradients"; }
  const std::string& path() const { return path_; }

  /// \throws InputError PL0703 where the system does not tell
  bool exists() const;
  /// \brief Makes the folder and proves that it can be written. \throws InputError PL0703
  void create() const;
  /// \brief Checks that nothing of another kind lies where the run's files and folders go.
  /// Writes nothing. \throws InputError PL0703
  void require_places() const;
  /// \brief Renames what an earlier run left, so that a new one starts empty and nothing is
  /// lost.
  void set_aside_earlier_run(Log& log) const;
  /// \brief Makes the folders of checkpoints and gradients, or proves that those of the run
  /// that goes on can be written. \throws InputError PL0703
  void make_folders(bool with_gradients) const;
  /// \throws IoError PL0310
  void write_deck(const std::string& resolved_deck) const;

 private:
  std::string path_;
};

/// \brief For a run that continues after `step`: removes from its log the lines "step M ..."
/// of later steps, which a job wrote after its last checkpoint, and ends a line that a kill
/// cut off. Everything else stays. The new file replaces the old one in one move. Nothing
/// happens where there is no log. \throws IoError PL0310
void trim_log(const std::string& path, std::int64_t step);

}  // namespace pleat::train
