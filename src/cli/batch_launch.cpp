// SPDX-License-Identifier: Apache-2.0
#include "batch_launch.hpp"

#include <algorithm>

#include <fmt/ranges.h>

#include "batch_script.hpp"
#include "pleat/base/error.hpp"

namespace pleat::cli {
namespace {

/// A variable of the launcher's that numbers the ranks of a node.
const char* local_rank(Launcher launcher) {
  switch (launcher) {
    case Launcher::kSrun:
      return "$SLURM_LOCALID";
    case Launcher::kFlux:
      return "$FLUX_TASK_LOCAL_ID";
    default:  // MPICH, then PALS, then Open MPI
      return "${MPI_LOCALRANKID:-${PALS_LOCAL_RANKID:-$OMPI_"
             "COMM_WORLD_LOCAL_RANK}}";
  }
}

/// Shows each rank one GPU. `exec` leaves no shell between a signal and pleat.
std::string device_wrapper(const MachineDescription& machine, Launcher launcher) {
  std::vector<std::int64_t> devices = machine.devices;
  for (auto next = static_cast<std::int64_t>(devices.size()); next < machine.gpus; ++next)
    devices.push_back(next);
  return fmt::format(
      "bash -c 'devices=({}); export {}=${{devices[{}]}}; exec \"$@\"' one-gpu-each",
      fmt::join(devices, " "), machine.device_variable, local_rank(launcher));
}

/// Options that follow from the shape of the job, before those of the machine. After the
/// first rank has ended srun gives the others a minute: ranks that stop with 75 do not
/// end at the same instant, ranks that lost one of theirs would wait for ever.
std::string shape_options(const MachineDescription& machine, Launcher launcher,
                          const Placeholders& placeholders, std::int64_t nodes,
                          std::int64_t ranks_per_node) {
  const std::int64_t ranks = nodes * ranks_per_node;
  switch (launcher) {
    case Launcher::kSrun:
      return fmt::format(
          "srun --nodes={} --ntasks={} --ntasks-per-node={}{}\n"
          "        --distribution=block:block --kill-on-bad-exit=0 --wait=60",
          nodes, ranks, ranks_per_node,
          machine.cores > 0 ? fmt::format(" --cpus-per-task={}", placeholders.cpus())
                            : "");
    case Launcher::kFlux:
      return fmt::format("flux run --nodes={} --ntasks={}{}{}", nodes, ranks,
                         machine.cores > 0
                             ? fmt::format(" --cores-per-task={}", placeholders.cores())
                             : "",
                         machine.gpus > 0 ? " --gpus-per-task=1" : "");
    default:
      return fmt::format("mpiexec -n {} -ppn {}", ranks, ranks_per_node);
  }
}

const std::vector<std::string>& machine_options(const MachineDescription& machine,
                                                Launcher launcher) {
  switch (launcher) {
    case Launcher::kSrun:
      return machine.srun_options;
    case Launcher::kFlux:
      return machine.flux_options;
    default:
      return machine.mpiexec_options;
  }
}

std::string launch_command(const MachineDescription& machine, Launcher launcher,
                           const Placeholders& placeholders, std::int64_t nodes,
                           std::int64_t ranks_per_node) {
  std::string text =
      shape_options(machine, launcher, placeholders, nodes, ranks_per_node);
  std::string options;
  for (const std::string& option : machine_options(machine, launcher))
    options += fmt::format(" {}", shell_word(placeholders.fill(option)));
  if (!options.empty()) text += "\n       " + options;
  if (!machine.device_variable.empty() && machine.gpus > 0)
    text += "\n        " + device_wrapper(machine, launcher);
  for (const std::string& word : machine.wrapper)
    text += (&word == &machine.wrapper.front() ? "\n        " : " ") + shell_word(word);
  return text;
}

constexpr const char* kRun =
    "\"${launch[@]}\" \"$program\" train \"$deck\" ${settings[@]+\"${settings[@]}\"}";

/// The ranks get their signals themselves; passing them on would make two of one, and the
/// second ends pleat at once.
constexpr const char* kSurvive = R"(
# Signals reach the ranks without this shell, which only has to outlive them.
trap ':' USR1 TERM HUP
{}
code=$?
)";

/// PBS and Flux tell by these signals that they end the job.
constexpr const char* kSurviveAndNote = R"(
# Signals reach the ranks without this shell, which only has to outlive them.
ended=
trap ':' USR1
trap 'ended=yes' TERM HUP
{}
code=$?
)";

constexpr const char* kPassOn = R"(
# USR1 comes to this shell alone (--signal=B:), which passes it to the launcher, and that to
# the ranks. TERM reaches all of them without its help.
trap 'interrupted=yes; kill -USR1 "$launcher"' USR1
trap 'interrupted=yes' TERM HUP
{} &
launcher=$!
code=127
while :; do
  interrupted=
  wait "$launcher"
  status=$?
  ((status == 127)) || code=$status   # 127: it was waited for already
  [[ -n $interrupted ]] || break
done
)";

}  // namespace

Placeholders::Placeholders(const MachineDescription& machine, std::int64_t nodes,
                           std::int64_t ranks_per_node)
    : nodes_(nodes),
      ranks_per_node_(ranks_per_node),
      cores_(std::max<std::int64_t>(1, machine.cores / ranks_per_node)),
      threads_per_core_(machine.threads_per_core) {}

std::int64_t Placeholders::value_of(const std::string& name,
                                    const std::string& text) const {
  if (name == "nodes") return nodes_;
  if (name == "ranks") return nodes_ * ranks_per_node_;
  if (name == "ranks_per_node") return ranks_per_node_;
  if (name == "cores") return cores();
  if (name == "cpus") return cpus();
  PLEAT_FAIL(InputError, "PL0942",
             "machine description: \"{}\": unknown placeholder {{{}}}\nHINT: known are "
             "{{nodes}}, {{ranks}}, {{ranks_per_node}}, {{cores}} and {{cpus}}.",
             text, name);
}

std::string Placeholders::fill(const std::string& text) const {
  std::string filled;
  std::size_t begin = 0;
  while (true) {
    const std::size_t open = text.find('{', begin);
    const std::size_t close = text.find('}', open);
    if (close == std::string::npos) return filled + text.substr(begin);
    filled += text.substr(begin, open - begin) +
              std::to_string(value_of(text.substr(open + 1, close - open - 1), text));
    begin = close + 1;
  }
}

Launcher launcher_of(const MachineDescription& machine, BatchSystem system) {
  if (machine.launcher != Launcher::kAutomatic) return machine.launcher;
  switch (system) {
    case BatchSystem::kSlurm:
      return Launcher::kSrun;
    case BatchSystem::kFlux:
      return Launcher::kFlux;
    default:
      return Launcher::kMpiexec;
  }
}

std::string launch_commands(const MachineDescription& machine, BatchSystem system,
                            std::int64_t nodes, std::int64_t ranks_per_node) {
  const Launcher launcher = launcher_of(machine, system);
  // The same cores and GPUs for the one rank as for each of all.
  const Placeholders placeholders(machine, nodes, ranks_per_node);
  // shellcheck takes the text for the shell of each rank for a mistake.
  const char* remark = machine.device_variable.empty() || machine.gpus == 0
                           ? ""
                           : "# shellcheck disable=SC2016\n";
  return fmt::format(
      "\n{0}launch=({1})\n{0}launch_one=({2})\n", remark,
      launch_command(machine, launcher, placeholders, nodes, ranks_per_node),
      launch_command(machine, launcher, placeholders, 1, 1));
}

std::string signal_handling(const MachineDescription& machine, BatchSystem system) {
  if (system != BatchSystem::kSlurm)
    return fmt::format(fmt::runtime(kSurviveAndNote), kRun);
  const bool direct = launcher_of(machine, system) == Launcher::kSrun;
  return fmt::format(fmt::runtime(direct ? kSurvive : kPassOn), kRun);
}

}  // namespace pleat::cli
