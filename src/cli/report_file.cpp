// SPDX-License-Identifier: Apache-2.0
#include "report_file.hpp"

#include "option_checks.hpp"
#include "output_place.hpp"
#include "pleat/io/durable_file.hpp"

namespace pleat::cli {

void ReportFile::add_options(CLI::App& command) {
  CLI::Option* json =
      command.add_option("--json", path_, "file that gets the page about the machine, as JSON")
          ->check(file_name());
  command.add_flag("--force", force_, "overwrites that file")->needs(json);
}

void ReportFile::require_free(const Runtime& runtime) const {
  if (wanted(runtime)) require_free_file(path_, force_);
}

void ReportFile::write(const bench::Report& report, const Runtime& runtime) const {
  if (wanted(runtime)) io::write_durably(path_, bench::report_json(report));
}

}  // namespace pleat::cli
