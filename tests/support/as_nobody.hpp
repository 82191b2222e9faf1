// SPDX-License-Identifier: Apache-2.0
#pragma once

/// \file
/// \brief What the permissions of files forbid, also where the tests are root's.

#include <string>

#include <gtest/gtest.h>
#include <unistd.h>

#include "support/command.hpp"

namespace pleat::test {

/// \brief While it lives the process is another user: root may read and write all files.
class AsNobody {
 public:
  AsNobody() : user_(geteuid()) { become(user_ == 0 ? kNobody : user_); }
  ~AsNobody() { become(user_); }
  AsNobody(const AsNobody&) = delete;
  AsNobody& operator=(const AsNobody&) = delete;

 private:
  static constexpr uid_t kNobody = 65534;
  static void become(uid_t user) { EXPECT_EQ(seteuid(user), 0); }

  uid_t user_;
};

/// \brief What goes in front of a command so that it runs as another user than root.
inline std::string command_as_nobody() {
  return geteuid() == 0 ? "setpriv --reuid 65534 --regid 65534 --clear-groups" : "";
}

/// \brief Not where the program lies in a folder of root's own.
inline bool nobody_can_run(const std::string& program) {
  return run_command(command_as_nobody() + " test -x '" + program + "'").exit_code == 0;
}

}  // namespace pleat::test
