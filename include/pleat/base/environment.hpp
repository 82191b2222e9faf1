// SPDX-License-Identifier: Apache-2.0
#pragma once

/// \file
/// \brief Switches of the environment, for what no deck decides.

namespace pleat {

/// \brief Whether `variable` is `value`; not where it is unset or empty.
/// \throws InputError PL0108 where it is anything else: a wish that is misspelt must not be
/// passed over
bool is_wished(const char* variable, const char* value);

}  // namespace pleat
