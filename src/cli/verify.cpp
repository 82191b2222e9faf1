// SPDX-License-Identifier: Apache-2.0
#include <cstdio>
#include <memory>
#include <string>
#include <vector>

#include <CLI/CLI.hpp>

#include "machine_page.hpp"
#include "option_checks.hpp"
#include "pleat/cli/commands.hpp"
#include "pleat/train/grid_choice.hpp"
#include "pleat/train/machine.hpp"
#include "pleat/train/run_config.hpp"
#include "pleat/train/verify.hpp"
#include "program.hpp"
#include "report_file.hpp"

namespace pleat::cli {
namespace {

struct VerifyOptions {
  std::string deck;
  std::vector<std::string> overrides;
  std::int64_t steps = 3;
  double tolerance = 1.0e-10;
  double seconds = 3.0;
  ReportFile file;
};

void print_difference(const char* what, const train::Difference& difference) {
  fmt::print("  {:<22} {:.1e}   {}\n", what, difference.relative,
             difference.relative > 0.0 ? difference.place : "");
}

/// On one rank there is no mapping: that the same steps repeat proves little.
void print_verdict(bool passes, double tolerance, int ranks) {
  if (passes && ranks == 1) {
    fmt::print("ONE RANK, COMPARED WITH ITSELF: nothing is proved about a mapping\n"
               "HINT: start it on several ranks: mpiexec -n N pleat verify DECK\n");
    return;
  }
  fmt::print("{}: tolerance {:.0e}\n", passes ? "VERIFIED" : "FAILED", tolerance);
}

void print_report(const train::VerifyReport& report, double tolerance, int ranks) {
  fmt::print("  {:<22} {}; content hash {:016x}\n", "first weights",
             report.same_start ? "equal, bit for bit" : "DIFFER", report.start_hash);
  fmt::print("  {:<22} {}; content hash {:016x}\n", "samples",
             report.same_samples ? "equal" : "DIFFER", report.samples_hash);
  fmt::print("  largest difference, relative to the largest element of each tensor:\n");
  print_difference("losses", report.loss);
  print_difference("gradient norm", report.gradient_norm);
  print_difference("gradients", report.gradients);
  print_difference("weights at the end", report.weights);
  print_verdict(report.passes(tolerance), tolerance, ranks);
}

std::string ways(int ranks) {
  return ranks == 1 ? "twice on one rank" : fmt::format("on one rank and on {}", ranks);
}

ExitCode run_verify(const VerifyOptions& options, const Runtime& runtime) {
  options.file.require_free(runtime);
  train::RunConfig config =
      train::load_run_config(options.deck, options.overrides, runtime.ranks());
  config.precision.compute = train::Precision::kFp64;
  train::require_same_deck(config, runtime.world());
  const comm::GridShape shape = train::grid_shape_of(config, runtime.ranks());
  train::require_mapping_independence(config, shape);
  const auto data = io::open_token_data(config.data, config.batch.sequence, config.model.vocab,
                                        config.run.seed);
  MachinePage page(config.parallel.backend, runtime);
  page.show(MachinePage::Answers::kAll);
  if (options.seconds > 0.0)
    page.measure_rates(bench::shape_of(config), bench::Kernels::kProducts, options.seconds);
  options.file.write(page.report(), runtime);
  if (runtime.rank() == 0) {
    fmt::print("\n{} steps of '{}' in fp64, {}\n  {}\n", options.steps, options.deck,
               ways(runtime.ranks()), train::describe_grid(shape));
    std::fflush(stdout);
  }
  const train::Reference reference(config, options.steps, *data, runtime.world());
  const train::VerifyReport report = reference.compare(config, *data);
  if (runtime.rank() == 0) {
    print_report(report, options.tolerance, runtime.ranks());
    if (!page.right_kernels()) fmt::print("FAILED: kernels of this machine, see above\n");
  }
  return report.passes(options.tolerance) && page.right_kernels()
             ? ExitCode::kDone
             : ExitCode::kNumerical;
}

}  // namespace

void add_verify(CLI::App& program, Job& job) {
  auto options = std::make_shared<VerifyOptions>();
  CLI::App* command = add_command(
      program, "verify",
      "Proves that a deck's mapping computes what one rank computes: a few steps in "
      "fp64, folded over all ranks (start it with mpirun) and on one of them, compared "
      "by losses, every gradient and every weight; on one rank alone it proves nothing. Before "
      "that a page about the machine, as of 'bench --portability'");
  command->add_option("deck", options->deck, "input deck (TOML)")->required();
  command->add_option("overrides", options->overrides,
                      "section.key=value: replaces what the deck says");
  command->add_option("--steps", options->steps, "steps to compare")
      ->capture_default_str()
      ->check(CLI::Range(1, 1000));
  command->add_option("--tolerance", options->tolerance, "largest relative difference, at most 1")
      ->capture_default_str()
      ->check(above_zero_up_to_one());
  command
      ->add_option("--seconds", options->seconds,
                   "to measure the machine's products and exchanges for; 0 leaves them out")
      ->capture_default_str()
      ->check(zero_or_more());
  options->file.add_options(*command);
  command->callback([&job, options] {
    job.work = [options](const Runtime& runtime) { return run_verify(*options, runtime); };
  });
}

}  // namespace pleat::cli
