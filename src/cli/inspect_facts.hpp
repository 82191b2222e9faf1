// SPDX-License-Identifier: Apache-2.0
#pragma once

/// \file
/// \brief What `pleat inspect` finds out about checkpoints, before it is shown in one form or
/// another. Damage is a fact like others: it is noted, and does not end the search.

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "pleat/io/checkpoint.hpp"

namespace pleat::cli {

/// \brief Of the finite elements; the numbers are 0 where there are none.
struct Statistics {
  std::int64_t finite = 0;
  std::int64_t not_finite = 0;
  double least = 0.0;
  double largest = 0.0;
  double mean = 0.0;
  double rms = 0.0;
};

struct TensorFacts {
  io::TensorGroup group = io::TensorGroup::kParameters;
  std::string name;
  io::ElementType type = io::ElementType::kF32;
  tensor::Shape shape;
  std::uint64_t checksum = 0;
  std::optional<Statistics> statistics = {};
  std::string damage = {};  ///< what is wrong; empty: the checksum agreed
};

struct CheckpointFacts {
  std::string path;
  std::int64_t bytes = 0;
  std::string modified = {};  ///< "2026-03-01T08:15:02Z"
  std::optional<io::CheckpointInfo> info = {};  ///< nothing where the file cannot be opened
  std::vector<TensorFacts> tensors = {};  ///< by group, then by name
  std::string damage = {};  ///< of the file as such

  /// \brief Everything that is wrong, one text for each thing.
  std::vector<std::string> damages() const;
};

struct RunFacts {
  std::string folder;
  std::string latest;  ///< the name in LATEST; empty: none
  std::vector<CheckpointFacts> checkpoints = {};  ///< newest first
  std::vector<std::string> unfinished = {};  ///< files that end in .tmp

  /// \brief The checkpoint that a run would continue from; null: none is usable.
  const CheckpointFacts* newest_usable() const;
};

/// \brief A history is one text with a line for each job.
std::vector<std::string> lines_of(const std::string& text);

Statistics statistics_of(io::ElementType type, std::span<const std::byte> bytes);

/// \brief Reads and verifies every byte.
CheckpointFacts checkpoint_facts(const std::string& path, bool statistics);

/// \param folder  of a run, or of its checkpoints
/// \return nothing where neither is a folder with checkpoints
std::optional<RunFacts> run_facts(const std::string& folder, bool statistics);

}  // namespace pleat::cli
