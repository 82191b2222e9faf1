// SPDX-License-Identifier: Apache-2.0
#pragma once

/// \file
/// \brief `--json FILE` and `--force` of the commands that write a page about a machine.

#include <string>

#include <CLI/CLI.hpp>

#include "pleat/base/runtime.hpp"
#include "pleat/bench/report.hpp"

namespace pleat::cli {

/// \brief Where the page is kept, if anywhere. The first rank writes.
class ReportFile {
 public:
  void add_options(CLI::App& command);

  /// \brief Before anything is measured. \throws InputError PL0110, PL0920, PL0921
  void require_free(const Runtime& runtime) const;
  /// \throws IoError PL0310
  void write(const bench::Report& report, const Runtime& runtime) const;

 private:
  bool wanted(const Runtime& runtime) const { return runtime.rank() == 0 && !path_.empty(); }

  std::string path_;
  bool force_ = false;
};

}  // namespace pleat::cli
