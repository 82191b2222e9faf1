// SPDX-License-Identifier: Apache-2.0
#pragma once

/// \file
/// \brief How numbers of a report are shown.

#include <string>

namespace pleat::bench {

/// \brief "123.4 GFLOP/s".
std::string rate_text(double rate, const std::string& unit);
/// \brief "12.3 us".
std::string seconds_text(double seconds);
/// \brief "0.51", "inf".
std::string ulps_text(double ulps);

}  // namespace pleat::bench
