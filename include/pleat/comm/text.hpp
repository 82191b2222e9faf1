// SPDX-License-Identifier: Apache-2.0
#pragma once

/// \file
/// \brief Text from one rank to all.

#include <string>

#include "pleat/comm/communicator.hpp"

namespace pleat::comm {

/// \brief The root's text, on every member. Collective.
std::string broadcast_text(Communicator& group, const std::string& text, int root);

}  // namespace pleat::comm
