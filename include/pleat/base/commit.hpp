// SPDX-License-Identifier: Apache-2.0
#pragma once

/// \file
/// \brief Which sources a program was built from.

#include <string_view>

namespace pleat {

/// \brief "commit 0123456789ab", with ", changed" where files differed from it; "commit unknown"
/// outside of git, and in programs that are not told (scripts/cmake/PleatCommit.cmake).
std::string_view build_commit();

}  // namespace pleat
