// SPDX-License-Identifier: Apache-2.0
#pragma once

/// \file
/// \brief Warnings of code that is handed no Log, such as kernels.

#include <string>

namespace pleat {

/// \brief Whom a warning concerns.
enum class Concerns {
  kEveryRank,  ///< all alike, where their machines are: the first one says it
  kThisRank    ///< maybe alone: it says so itself, by its number
};

/// \brief "WARNING: ..." on stderr.
void warn(Concerns whom, const std::string& text);

/// \brief Which rank of the job this process is; Runtime tells it. Before, it is the only one.
void set_rank_of_warnings(int rank, int ranks);

}  // namespace pleat
