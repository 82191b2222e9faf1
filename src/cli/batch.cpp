// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include <fmt/ranges.h>
#include <CLI/CLI.hpp>

#include "batch_machine.hpp"
#include "batch_placement.hpp"
#include "batch_script.hpp"
#include "option_checks.hpp"
#include "output_place.hpp"
#include "pleat/cli/commands.hpp"
#include "pleat/io/durable_file.hpp"
#include "pleat/io/places.hpp"
#include "pleat/train/run_folder.hpp"
#include "pleat/train/stop_requests.hpp"
#include "program.hpp"

namespace pleat::cli {
namespace {

namespace fs = std::filesystem;

struct BatchOptions {
  std::string deck;
  std::vector<std::string> settings;
  std::string system;
  std::string machine;
  std::int64_t nodes = 1;
  std::int64_t gpus_per_node = 0;
  std::int64_t ranks_per_node = 0;
  std::string time;
  std::string account;
  std::string queue;
  std::string output;
  std::string program;
  bool force = false;
};

[[noreturn]] void fail_option(const std::string& message) {
  PLEAT_FAIL(InputError, "PL0943", "command line: {}", message);
}

BatchSystem system_of(const std::string& name, const MachineDescription& machine) {
  if (name == "slurm") return BatchSystem::kSlurm;
  if (name == "pbs") return BatchSystem::kPbs;
  if (name == "flux") return BatchSystem::kFlux;
  return machine.system;
}

std::int64_t ranks_per_node(const BatchOptions& options,
                            const MachineDescription& machine) {
  if (machine.gpus > 0) {
    if (options.ranks_per_node > 0)
      fail_option(
          fmt::format("--ranks-per-node: {} runs one rank on each GPU\n"
                      "HINT: use --gpus-per-node, 1 to {}.",
                      machine.title, machine.gpus));
    if (options.gpus_per_node > machine.gpus)
      fail_option(fmt::format("--gpus-per-node {}: a node of {} has {}",
                              options.gpus_per_node, machine.title, machine.gpus));
    return options.gpus_per_node > 0 ? options.gpus_per_node : machine.gpus;
  }
  if (options.gpus_per_node > 0)
    fail_option(fmt::format(
        "--gpus-per-node: {} has no GPUs\nHINT: use --ranks-per-node.", machine.title));
  if (options.ranks_per_node == 0)
    fail_option(fmt::format("--ranks-per-node is needed for {}", machine.title));
  if (machine.cores > 0 && options.ranks_per_node > machine.cores)
    fail_option(fmt::format("--ranks-per-node {}: a node of {} has {} cores",
                            options.ranks_per_node, machine.title, machine.cores));
  return options.ranks_per_node;
}

/// Batch systems do not agree on the unit of a bare number: minutes or seconds.
std::int64_t job_seconds(const std::string& time) {
  const bool bare = time.find_first_not_of("0123456789") == std::string::npos;
  const auto seconds = bare ? std::nullopt : train::parse_wall_limit(time);
  if (!seconds)
    fail_option(
        fmt::format("--time {}: expected a time such as 45m, 3h50m, 03:50:00 or "
                    "1-12:00:00{}",
                    time, bare ? "; a number alone has no unit" : ""));
  constexpr double kShortest = 60, kLongest = 366 * 86400.0;
  if (*seconds < kShortest || *seconds > kLongest)
    fail_option(fmt::format("--time {}: expected one minute to one year", time));
  return std::llround(*seconds);
}

/// They stand in directives, which know no quotes.
void require_one_word(const char* option, const std::string& text) {
  const bool blank = std::any_of(text.begin(), text.end(),
                                 [](unsigned char c) { return c <= 0x20 || c == 0x7F; });
  if (blank) fail_option(fmt::format("{} '{}': expected one word", option, text));
}

/// From the second job on such a run goes on from its own checkpoints.
bool begins_in_another_folder(const train::RunConfig& config) {
  const std::string& resume = config.checkpoint.resume;
  return resume != "none" &&
         !io::is_in_folder(resume, train::RunFolder(config.run.output).checkpoints());
}

/// A job that is queued again has to find what the one before it left.
void require_continuation(const train::RunConfig& config) {
  PLEAT_REQUIRE(
      config.checkpoint.resume == "auto" || begins_in_another_folder(config), InputError,
      "PL0944",
      "checkpoint.resume = \"{}\": each job of the batch would begin there again\n"
      "HINT: leave checkpoint.resume at \"auto\"; model.init gives a run the "
      "weights of a checkpoint.",
      config.checkpoint.resume);
}

/// They tell no job when it ends, and PBS sends no signal beforehand.
void require_known_limit(const train::RunConfig& config, BatchSystem system) {
  PLEAT_REQUIRE(
      config.run.wall_limit != "auto" || system == BatchSystem::kSlurm, InputError,
      "PL0945",
      "run.wall_limit = \"auto\" finds no limit in the environment of PBS or Flux: the "
      "batch system would end each job before pleat does\n"
      "HINT: leave run.wall_limit out; the script sets it from --time.");
}

/// A limit that no job reaches would leave each to be killed at its end, on PBS without
/// a signal beforehand, and so never queued again.
void require_reachable_limit(const train::RunConfig& config, const std::string& time) {
  const auto limit = train::parse_wall_limit(config.run.wall_limit);  // none for "auto"
  PLEAT_REQUIRE(!limit || std::llround(*limit) < job_seconds(time), InputError, "PL0945",
                "run.wall_limit = \"{}\" is not less than --time {}: the batch system "
                "would end each job before pleat does\n"
                "HINT: leave run.wall_limit out; the script sets it from --time.",
                config.run.wall_limit, time);
}

/// Another program may have removed it.
std::string working_folder() {
  std::error_code reason;
  const fs::path folder = fs::current_path(reason);
  if (reason) io::fail_to_look_at(".", reason);
  return folder.string();
}

std::string absolute(const std::string& path) {
  return fs::absolute(path).lexically_normal().string();
}

BatchJob describe_job(const BatchOptions& options, const MachineDescription& machine,
                      const train::RunConfig& config) {
  BatchJob job;
  job.system = system_of(options.system, machine);
  job.program = options.program.empty() ? fs::read_symlink("/proc/self/exe").string()
                                        : options.program;
  job.deck = options.deck;
  job.settings = options.settings;
  job.folder = working_folder();
  job.name = config.run.name;
  job.script =
      absolute(options.output.empty() ? config.run.name + ".sh" : options.output);
  job.run_folder = config.run.output;
  job.has_wall_limit = !config.run.wall_limit.empty();
  job.nodes = options.nodes;
  job.ranks_per_node = ranks_per_node(options, machine);
  job.seconds = job_seconds(options.time);
  job.account = options.account;
  job.queue = options.queue.empty() ? machine.queue : options.queue;
  require_one_word("--account", job.account);
  require_one_word("--queue", job.queue);
  if (machine.account && job.account.empty())
    fail_option(fmt::format("--account is needed on {}", machine.title));
  return job;
}

/// Warnings stand in the script, where they stay, and on stderr, where they are seen.
void add_remarks(const train::RunConfig& config, BatchJob& job) {
  const Placement placement = place_on_nodes(config, job.nodes, job.ranks_per_node);
  job.remarks = placement.notes;
  for (const std::string& warning : placement.warnings) {
    job.remarks.push_back("WARNING: " + warning);
    fmt::print(stderr, "WARNING: {}\n", warning);
  }
}

/// The one that is named, or the general one of its kind; which, it says on stderr.
MachineDescription choose_machine(const BatchOptions& options) {
  if (!options.machine.empty()) return read_machine(options.machine);
  const char* name = options.gpus_per_node > 0 ? "h100" : "laptop";
  const MachineDescription machine = read_machine(name);
  fmt::print(stderr, "the script is for {} (--machine {}): no --machine was given\n",
             machine.title, name);
  return machine;
}

ExitCode run_batch(const BatchOptions& options, const Runtime& runtime) {
  if (runtime.rank() != 0) return ExitCode::kDone;
  const MachineDescription machine = choose_machine(options);
  const train::RunConfig config = train::load_run_config(options.deck, options.settings);
  require_continuation(config);
  require_reachable_limit(config, options.time);
  BatchJob job = describe_job(options, machine, config);
  require_known_limit(config, job.system);
  // Again, now that the ranks are known: an illegal mapping is told with its line.
  (void)train::load_run_config(options.deck, options.settings,
                               job.nodes * job.ranks_per_node);
  add_remarks(config, job);
  const std::string text = batch_script(machine, job);
  if (options.output.empty()) {
    std::fputs(text.c_str(), stdout);
    return ExitCode::kDone;
  }
  require_free_file(options.output, options.force);
  io::write_durably(options.output, text);
  std::error_code ignored;  // bash FILE goes all the same
  fs::permissions(options.output, fs::perms::owner_exec, fs::perm_options::add, ignored);
  fmt::print("{} {}\n", submit_command(job.system), shell_word(options.output));
  return ExitCode::kDone;
}

void add_job_options(CLI::App& command, BatchOptions& options) {
  const auto positive = CLI::Range(std::int64_t{1}, std::int64_t{1} << 20);
  command.add_option("--nodes", options.nodes, "nodes of the job")
      ->check(positive)
      ->capture_default_str();
  command
      .add_option("--gpus-per-node", options.gpus_per_node,
                  "GPUs, one for each rank; default: all of a node")
      ->check(positive);
  command
      .add_option("--ranks-per-node", options.ranks_per_node,
                  "ranks of a node on a machine without GPUs")
      ->check(positive);
  command.add_option("--time", options.time, "time of a job: 45m, 3h50m, 03:50:00")
      ->required();
  command.add_option("--account", options.account, "account, project or bank");
  command.add_option("--queue", options.queue,
                     "queue or partition; default: the machine's");
}

}  // namespace

void add_batch(CLI::App& program, Job& job) {
  auto options = std::make_shared<BatchOptions>();
  CLI::App* command = add_command(
      program, "batch",
      "Writes a batch script that trains until the run is complete, job after job");
  command->add_option("deck", options->deck, "input deck (TOML)")->required();
  command->add_option("overrides", options->settings,
                      "section.key=value: replaces what the deck says");
  command->add_option(
      "--machine", options->machine,
      "a description in inputs/machines, e.g. frontier, or the path of one; default: "
      "h100 with --gpus-per-node, else laptop");
  command
      ->add_option("--system", options->system,
                   "slurm, pbs or flux; default: the machine's")
      ->check(CLI::IsMember({"slurm", "pbs", "flux"}));
  add_job_options(*command, *options);
  CLI::Option* output =
      command->add_option("--output", options->output, "file to write; default: stdout")
          ->check(file_name());
  command->add_flag("--force", options->force, "overwrites the file")->needs(output);
  command->add_option("--program", options->program,
                      "path of pleat on the machine; default: this program");
  command->callback([&job, options] {
    job = {.work = [options](const Runtime& runtime) { return run_batch(*options, runtime); },
           .computes = false};
  });
}

}  // namespace pleat::cli
