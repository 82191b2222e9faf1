// SPDX-License-Identifier: Apache-2.0
#pragma once

/// \file
/// \brief The rules of a mapping, one after the other, and the keys that can mend each.

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "pleat/plan/mapping.hpp"

namespace pleat::plan {

/// \brief What a deck chooses.
struct Choice {
  Mapping mapping;
  Batch batch;
  std::int64_t ranks = 0;  ///< to be filled; 0: any number
};

/// \brief A deck's key of a choice. A schedule has the value of its enumerator.
enum class Key {
  kPipeline,
  kContext,
  kTensor,
  kExpert,
  kExpertTensor,
  kChunks,
  kSchedule,
  kSequence,
  kMicro,
  kLayout  ///< has no single value
};

/// \brief A rule that does not hold.
struct Fault {
  int rule = 0;  ///< its place in the order in which they are checked
  const char* id = "";
  std::string what;
  std::vector<Key> keys;  ///< the choices that it limits
};

/// \brief The first rule that does not hold.
std::optional<Fault> first_fault(const ModelConfig& config, const Choice& choice);

/// \brief "HINT: the nearest legal choices are ..." for a choice with that fault.
std::string legal_choices(const ModelConfig& config, const Choice& choice,
                          const Fault& fault);

}  // namespace pleat::plan
