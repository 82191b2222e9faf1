// SPDX-License-Identifier: Apache-2.0
#include <cstdio>
#include <memory>
#include <string>
#include <vector>

#include <CLI/CLI.hpp>

#include "machine_page.hpp"
#include "option_checks.hpp"
#include "pleat/bench/report.hpp"
#include "pleat/cli/commands.hpp"
#include "pleat/io/durable_file.hpp"
#include "pleat/train/grid_choice.hpp"
#include "pleat/train/run_config.hpp"
#include "program.hpp"
#include "report_file.hpp"

namespace pleat::cli {
namespace {

struct BenchOptions {
  std::string deck;
  std::vector<std::string> overrides;
  bool portability = false;
  double seconds = 20.0;
  ReportFile file;
  std::vector<std::string> compare;
};

/// The shape to time and who exchanges: a deck's, or those that need none.
struct BenchSetting {
  bench::Shape shape = bench::default_shape();
  comm::BackendKind backend = comm::BackendKind::kAuto;
};

BenchSetting bench_setting(const BenchOptions& options, const Runtime& runtime) {
  if (options.deck.empty()) return {};
  const train::RunConfig config = train::load_run_config(options.deck, options.overrides);
  train::require_same_deck(config, runtime.world());
  return {bench::shape_of(config), config.parallel.backend};
}

ExitCode measure(const BenchOptions& options, const Runtime& runtime) {
  options.file.require_free(runtime);
  const BenchSetting setting = bench_setting(options, runtime);
  MachinePage page(setting.backend, runtime);
  page.show(options.portability ? MachinePage::Answers::kAll
                                : MachinePage::Answers::kSummary);
  page.measure_rates(
      setting.shape,
      options.portability ? bench::Kernels::kProducts : bench::Kernels::kAll,
      options.seconds);
  options.file.write(page.report(), runtime);
  return page.right_kernels() ? ExitCode::kDone : ExitCode::kInternal;
}

bench::Report read_report(const std::string& path) {
  return bench::parse_report(io::read_small_file(path), path);
}

ExitCode compare(const BenchOptions& options, const Runtime& runtime) {
  if (runtime.rank() != 0) return ExitCode::kDone;
  const bench::Report a = read_report(options.compare.front());
  const bench::Report b = read_report(options.compare.back());
  const bench::Comparison comparison = bench::compare_reports(a, b);
  fmt::print("A: {}\nB: {}\n{}", options.compare.front(), options.compare.back(),
             comparison.text);
  return comparison.correct ? ExitCode::kDone : ExitCode::kInternal;
}

}  // namespace

void add_bench(CLI::App& program, Job& job) {
  auto options = std::make_shared<BenchOptions>();
  CLI::App* command =
      add_command(program, "bench",
                  "Times the kernels and the exchanges of the ranks that it "
                  "runs on (mpirun) against the "
                  "measured peaks of the machine, and checks the kernels "
                  "against stored answers; exit code "
                  "1 where one is wrong");
  CLI::Option* deck = command->add_option(
      "deck", options->deck,
      "input deck (TOML) whose sizes are timed; else those of bench-s");
  command->add_option("overrides", options->overrides,
                      "section.key=value: replaces what the deck says");
  CLI::Option* portability = command->add_flag(
      "--portability", options->portability,
      "a page about the machine: every result of every kernel, products and exchanges");
  CLI::Option* seconds = command
      ->add_option("--seconds", options->seconds,
                   "to measure for; more where a kernel takes long")
      ->capture_default_str()
      ->check(above_zero());
  options->file.add_options(*command);
  command
      ->add_option("--compare", options->compare,
                   "two such files side by side, instead of measuring")
      ->expected(2)
      ->type_name("A B")
      ->excludes(deck)
      ->excludes(portability)
      ->excludes(command->get_option("--json"))
      ->excludes(command->get_option("--force"))
      ->excludes(seconds);
  command->callback([&job, options] {
    job.computes = options->compare.empty();
    job.work = [options](const Runtime& runtime) {
      return options->compare.empty() ? measure(*options, runtime)
                                      : compare(*options, runtime);
    };
  });
}

}  // namespace pleat::cli
