// SPDX-License-Identifier: Apache-2.0
#include "pleat/base/commit.hpp"

namespace pleat {

// Alone in its object, which the linker leaves in the library where the program defines the
// function itself: so a commit relinks build/pleat and none of the tests.
std::string_view build_commit() { return "commit unknown"; }

}  // namespace pleat
