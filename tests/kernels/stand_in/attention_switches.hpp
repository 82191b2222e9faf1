// SPDX-License-Identifier: Apache-2.0
#pragma once

/// \file
/// \brief Switches and counters of the library that stands in for cuDNN.

#include <cstddef>

namespace pleat::test {

struct AttentionStandIn {
  bool refuses = false;
  bool gives_wrong_numbers = false;
  bool fails = false;
  std::size_t workspace_bytes = 64;
  int planned = 0;
  int run = 0;
};
AttentionStandIn& attention_stand_in();

}  // namespace pleat::test
