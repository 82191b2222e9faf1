// SPDX-License-Identifier: Apache-2.0
#include "batch_script.hpp"

#include <algorithm>
#include <cctype>

#include <fmt/ranges.h>

#include "batch_launch.hpp"
#include "pleat/base/error.hpp"

namespace pleat::cli {
namespace {

/// Seconds between the end of the training and that of the job: to leave the launcher, to
/// queue the job again.
std::int64_t margin_seconds(const BatchJob& job) {
  return std::clamp<std::int64_t>(job.seconds / 60, 10, 120);
}

std::string colon_time(std::int64_t seconds) {
  return fmt::format("{:02}:{:02}:{:02}", seconds / 3600, seconds / 60 % 60,
                     seconds % 60);
}

/// "#SBATCH --time=..." and the like, one a line.
class Directives {
 public:
  Directives(const char* sentinel, const Placeholders& placeholders)
      : sentinel_(sentinel), placeholders_(placeholders) {}
  template <class... Arguments>
  void add(fmt::format_string<Arguments...> format, Arguments&&... arguments) {
    text_ += fmt::format("{} {}\n", sentinel_,
                         fmt::format(format, std::forward<Arguments>(arguments)...));
  }
  void add_unless_empty(const char* option, const std::string& value) {
    if (!value.empty()) text_ += fmt::format("{} {}{}\n", sentinel_, option, value);
  }
  void add_all(const std::vector<std::string>& texts) {
    for (const std::string& text : texts) add("{}", placeholders_.fill(text));
  }
  const std::string& text() const { return text_; }

 private:
  const char* sentinel_;
  const Placeholders& placeholders_;
  std::string text_;
};

/// The signal comes `margin` seconds ahead of the end, or up to a minute earlier. To the
/// tasks of srun it goes directly; other launchers run inside the batch shell's step, so
/// the shell gets it ("B:") and passes it on.
std::string slurm_directives(const MachineDescription& machine, const BatchJob& job,
                             const Placeholders& placeholders) {
  Directives lines("#SBATCH", placeholders);
  lines.add("--job-name={}", job.name);
  lines.add_unless_empty("--account=", job.account);
  lines.add_unless_empty("--partition=", job.queue);
  lines.add("--nodes={}", job.nodes);
  lines.add("--ntasks-per-node={}", job.ranks_per_node);
  if (machine.cores > 0) lines.add("--cpus-per-task={}", placeholders.cpus());
  const std::int64_t days = job.seconds / 86400;
  lines.add("--time={}{}", days > 0 ? fmt::format("{}-", days) : "",
            colon_time(job.seconds % 86400));
  lines.add("--signal={}USR1@{}",
            launcher_of(machine, job.system) == Launcher::kSrun ? "" : "B:",
            margin_seconds(job));
  lines.add("--requeue");
  lines.add("--open-mode=append");
  lines.add("--output={}-%j.log", job.name);
  lines.add_all(machine.slurm_directives);
  return lines.text();
}

std::string pbs_directives(const MachineDescription& machine, const BatchJob& job,
                           const Placeholders& placeholders) {
  Directives lines("#PBS", placeholders);
  lines.add("-N {}", job.name);
  lines.add_unless_empty("-A ", job.account);
  lines.add_unless_empty("-q ", job.queue);
  const std::string chunk = placeholders.fill(machine.pbs_chunk);
  lines.add("-l select={}{}{}", job.nodes, chunk.empty() ? "" : ":", chunk);
  lines.add("-l walltime={}", colon_time(job.seconds));
  lines.add("-j oe");
  lines.add("-r y");
  lines.add_all(machine.pbs_directives);
  return lines.text();
}

std::string flux_directives(const MachineDescription& machine, const BatchJob& job,
                            const Placeholders& placeholders) {
  Directives lines("# flux:", placeholders);
  lines.add("--job-name={}", job.name);
  lines.add_unless_empty("--bank=", job.account);
  lines.add_unless_empty("--queue=", job.queue);
  lines.add("--nodes={}", job.nodes);
  lines.add("--exclusive");
  lines.add("--time-limit={}s", job.seconds);
  lines.add("--signal=SIGUSR1@{}s", margin_seconds(job));
  lines.add("--output={}-{{{{id}}}}.log", job.name);
  lines.add_all(machine.flux_directives);
  return lines.text();
}

std::string directives(const MachineDescription& machine, const BatchJob& job,
                       const Placeholders& placeholders) {
  switch (job.system) {
    case BatchSystem::kSlurm:
      return slurm_directives(machine, job, placeholders);
    case BatchSystem::kPbs:
      return pbs_directives(machine, job, placeholders);
    case BatchSystem::kFlux:
      return flux_directives(machine, job, placeholders);
  }
  PLEAT_FAIL(InternalError, "PL0100", "unknown batch system");
}

std::string heading(const MachineDescription& machine, const BatchJob& job) {
  std::string text = fmt::format(
      "\n# {} node{} of {}, {} ranks on each: {} ranks. Submit it from anywhere:\n"
      "#   {} {}\n"
      "# It checks the deck, trains until the run is complete or the time is over, and "
      "in\n"
      "# the latter case queues itself again; pleat continues from the newest "
      "checkpoint.\n",
      job.nodes, job.nodes == 1 ? "" : "s", machine.title, job.ranks_per_node,
      job.ranks(), submit_command(job.system), shell_word(job.script));
  for (const std::string& remark : job.remarks) text += "# " + remark + "\n";
  return text;
}

std::string names(const BatchJob& job) {
  std::string text = fmt::format(
      "\nprogram={}\ndeck={}\nrun={}   # the folder of the run\n"
      "settings=(",
      shell_word(job.program), shell_word(job.deck), shell_word(job.run_folder));
  for (const std::string& setting : job.settings)
    text += fmt::format("\n  {}", shell_word(setting));
  text += job.settings.empty() ? ")\n" : "\n)\n";
  if (job.system != BatchSystem::kSlurm)
    text += fmt::format("script={}   # this file, to queue it again\n",
                        shell_word(job.script));
  return text + fmt::format("cd {} || exit 2\n", shell_word(job.folder));
}

bool sets_threads(const std::vector<std::string>& variables) {
  return std::any_of(variables.begin(), variables.end(), [](const std::string& text) {
    return text.starts_with("OMP_NUM_THREADS=");
  });
}

std::string environment(const MachineDescription& machine,
                        const Placeholders& placeholders) {
  std::string text = "\n";
  if (!machine.modules.empty()) {
    text += "module load";
    for (const std::string& module : machine.modules)
      text += fmt::format(" {}", shell_word(module));
    text += " || exit 2\n";
  }
  if (machine.cores > 0 && !sets_threads(machine.variables)) {
    text += fmt::format(
        "export OMP_NUM_THREADS={}\nexport OMP_PLACES=cores\nexport "
        "OMP_PROC_BIND=close\n",
        placeholders.cores());
  }
  for (const std::string& variable : machine.variables) {
    const auto equals = variable.find('=');
    text += fmt::format("export {}={}\n", variable.substr(0, equals),
                        shell_word(placeholders.fill(variable.substr(equals + 1))));
  }
  return text == "\n" ? "" : text;
}

constexpr const char* kFunctions = R"(
say() { echo "pleat batch: $(date '+%Y-%m-%d %H:%M:%S') $*"; }
newest() { cat -- "$run/checkpoints/LATEST" 2>/dev/null; }
steps() { sed -n '/^\[run\]$/,/^\[/s/^steps = //p' "$run/deck.toml" 2>/dev/null; }
)";

constexpr const char* kScriptCheck = R"(
# Found out now rather than when the job has to be queued again.
if [[ ! -r $script ]]; then
  say "$script is not readable here: save this script under that name and submit it again"
  exit 2
fi
)";

/// Before all nodes start something that cannot work; such a job is not queued again.
constexpr const char* kPreflight = R"(
"${{launch_one[@]}}" "$program" check "$deck" --ranks {} ${{settings[@]+"${{settings[@]}}"}}
code=$?
if ((code != 0)); then
  say "the deck does not fit this job (exit code $code): nothing was started"
  exit "$code"
fi
)";

std::string training(const MachineDescription& machine, const BatchJob& job) {
  std::string text;
  if (!job.has_wall_limit) {
    text = fmt::format(
        "\n# The job's time less {} s to leave it in order, less what is already over.\n"
        "settings+=(\"run.wall_limit=$(({} - SECONDS))\")\n",
        margin_seconds(job), job.seconds - margin_seconds(job));
  }
  text += "\nbefore=$(newest)\n";
  text += signal_handling(machine, job.system);
  return text;
}

/// Hydra's mpiexec on nodes that it reaches through srun sometimes returns 0 when all
/// ranks ended with 75, so 0 alone does not tell that the run is complete. How many steps
/// it has, the deck may tell otherwise than when the script was written: each job writes it
/// to the run folder.
constexpr const char* kOutcome = R"(
if ((code == 0)); then
  wanted=$(steps)
  saved=0
  [[ $(newest) =~ ^step_([0-9]+) ]] && saved=$((10#${BASH_REMATCH[1]}))
  if [[ -z $wanted ]] || ((saved < wanted)); then
    say "the launcher returned 0, but only $saved of ${wanted:-?} steps are saved: taken for" \
        "a stop"
    code=75
  fi
fi
case $code in
  0) say "the run is complete"; exit 0 ;;
  75) ;;
  *) say "pleat ended with exit code $code: not queued again"; exit "$code" ;;
esac
if [[ -e $run/STOPPED ]]; then
  say "the file STOP has ended the run for now: not queued again"
  exit 75
fi
after=$(newest)
if [[ $after == "$before" ]]; then
  say "no step since ${before:-the start} was saved, so another job would not get further" \
      "either: not queued again"
  exit 75
fi
)";

constexpr const char* kRequeueSlurm = R"(
# After scancel or at the time limit the job is no longer running: it stays ended.
state=$(squeue --noheader --jobs="$SLURM_JOB_ID" --format=%T)
if [[ $state != RUNNING ]]; then
  say "Slurm ends this job ($state): not queued again; '$after' is where it would continue"
  exit 75
fi
say "stopped after $after: queued again"
scontrol requeue "$SLURM_JOB_ID" || { say "scontrol requeue failed"; exit 75; }
)";

/// qrerun asks for a manager's privilege, so the job submits its script.
constexpr const char* kRequeuePbs = R"(
if [[ -n $ended ]]; then
  say "PBS ends this job: not queued again; '$after' is where it would continue"
  exit 75
fi
say "stopped after $after: queued again"
qsub "$script" || { say "qsub failed"; exit 75; }
)";

constexpr const char* kRequeueFlux = R"(
if [[ -n $ended ]]; then
  say "Flux ends this job: not queued again; '$after' is where it would continue"
  exit 75
fi
say "stopped after $after: queued again"
flux --parent batch "$script" || { say "flux batch failed"; exit 75; }
)";

const char* requeue(BatchSystem system) {
  switch (system) {
    case BatchSystem::kSlurm:
      return kRequeueSlurm;
    case BatchSystem::kPbs:
      return kRequeuePbs;
    case BatchSystem::kFlux:
      return kRequeueFlux;
  }
  PLEAT_FAIL(InternalError, "PL0100", "unknown batch system");
}

}  // namespace

std::string shell_word(const std::string& text) {
  const auto plain = [](unsigned char c) {
    return std::isalnum(c) != 0 ||
           std::string_view("_-./=:,+%@").find(c) != std::string::npos;
  };
  if (!text.empty() && std::all_of(text.begin(), text.end(), plain)) return text;
  std::string quoted = "'";
  for (const char c : text)
    quoted += c == '\'' ? std::string("'\\''") : std::string(1, c);
  return quoted + "'";
}

std::string submit_command(BatchSystem system) {
  switch (system) {
    case BatchSystem::kSlurm:
      return "sbatch";
    case BatchSystem::kPbs:
      return "qsub";
    case BatchSystem::kFlux:
      return "flux batch";
  }
  PLEAT_FAIL(InternalError, "PL0100", "unknown batch system");
}

std::string batch_script(const MachineDescription& machine, const BatchJob& job) {
  const Placeholders placeholders(machine, job.nodes, job.ranks_per_node);
  // A login shell defines `module`.
  std::string text = machine.modules.empty() ? "#!/bin/bash\n" : "#!/bin/bash -l\n";
  text += directives(machine, job, placeholders) + heading(machine, job) + names(job) +
          environment(machine, placeholders) + kFunctions;
  if (job.system != BatchSystem::kSlurm) text += kScriptCheck;
  text += launch_commands(machine, job.system, job.nodes, job.ranks_per_node);
  text += fmt::format(kPreflight, job.ranks());
  return text + training(machine, job) + kOutcome + requeue(job.system);
}

}  // namespace pleat::cli
