// SPDX-License-Identifier: Apache-2.0
#pragma once

/// \file
/// \brief One job at a time in a run folder.

#include <string>

#include "pleat/base/log.hpp"
#include "pleat/io/file_descriptor.hpp"

namespace pleat::train {

/// \brief Holds FOLDER/.lock for its lifetime, on the first rank. The kernel's lock goes with
/// the process, however that ends; the file's text (host, process, batch job, since when) is
/// for the message.
class RunLock {
 public:
  /// \brief The folder must exist. Where the file system knows no locks, a warning.
  /// \throws InputError PL0731 another job holds it: who, and what to do
  RunLock(const std::string& folder, Log& log);

 private:
  io::FileDescriptor file_;
};

}  // namespace pleat::train
