// SPDX-License-Identifier: Apache-2.0
#pragma once

/// \file
/// \brief What the permissions of files forbid, also where the tests are root's.

#include <gtest/gtest.h>
#include <unistd.h>

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

}  // namespace pleat::test
