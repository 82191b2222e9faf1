// SPDX-License-Identifier: Apache-2.0
#pragma once

/// \file
/// \brief Text from one rank, or from each, to all.

#include <string>
#include <vector>

#include "pleat/comm/communicator.hpp"

namespace pleat::comm {

/// \brief The root's text, on every member. Collective.
std::string broadcast_text(Communicator& group, const std::string& text, int root);

/// \brief Every member's text, in rank order, on every member; none has a NUL. Collective.
std::vector<std::string> all_gather_text(Communicator& group, const std::string& text);

}  // namespace pleat::comm
