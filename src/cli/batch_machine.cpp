// SPDX-License-Identifier: Apache-2.0
#include "batch_machine.hpp"

#include <algorithm>
#include <cctype>
#include <filesystem>

#include <fmt/ranges.h>

#include "pleat/base/error.hpp"
#include "pleat/base/spelling.hpp"
#include "pleat/io/deck.hpp"
#include "pleat/io/places.hpp"

namespace pleat::cli {
namespace {

void declare_machine(io::DeckKeys& keys, MachineDescription& machine) {
  keys.add_section("machine", "A node.");
  keys.add(machine.title,
           {.name = "machine.title", .meaning = "what it is", .required = true});
  keys.add_choice(machine.system,
                  {{"slurm", BatchSystem::kSlurm},
                   {"pbs", BatchSystem::kPbs},
                   {"flux", BatchSystem::kFlux}},
                  {.name = "machine.system", .meaning = "its batch system"});
  const auto add = [&](std::int64_t& field, const char* name, double low,
                       const char* meaning) {
    keys.add(field,
             {.name = name, .meaning = meaning, .range = {.low = low, .high = 4096}});
  };
  add(machine.cores, "machine.cores", 0,
      "cores of a node that the program may use; 0: unknown");
  add(machine.threads_per_core, "machine.threads_per_core", 1,
      "logical CPUs of a core, as Slurm counts them");
  add(machine.gpus, "machine.gpus", 0, "GPUs of a node; 0: ranks run on CPUs");
}

void declare_job(io::DeckKeys& keys, MachineDescription& machine) {
  keys.add_section("job", "What the batch system is asked for.");
  keys.add(machine.queue, {.name = "job.queue", .meaning = "queue or partition"});
  keys.add(machine.account,
           {.name = "job.account", .meaning = "whether a job must name an account"});
  keys.add(machine.slurm_directives,
           {.name = "job.slurm", .meaning = "further #SBATCH options"});
  keys.add(machine.pbs_directives,
           {.name = "job.pbs", .meaning = "further #PBS options"});
  keys.add(machine.flux_directives,
           {.name = "job.flux", .meaning = "further flux options"});
  keys.add(machine.pbs_chunk,
           {.name = "job.pbs_chunk", .meaning = "resources of a node in -l select"});
}

void declare_environment(io::DeckKeys& keys, MachineDescription& machine) {
  keys.add_section("environment", "Where the program finds itself.");
  keys.add(machine.modules,
           {.name = "environment.modules", .meaning = "modules to load, in order"});
  keys.add(machine.variables,
           {.name = "environment.variables", .meaning = "\"NAME=value\" to export"});
}

void declare_launch(io::DeckKeys& keys, MachineDescription& machine) {
  keys.add_section("launch", "How ranks are started and bound.");
  keys.add_choice(machine.launcher,
                  {{"auto", Launcher::kAutomatic},
                   {"srun", Launcher::kSrun},
                   {"mpiexec", Launcher::kMpiexec},
                   {"flux", Launcher::kFlux}},
                  {.name = "launch.launcher",
                   .meaning = "starts the ranks; \"auto\": the batch system's own"});
  keys.add(machine.srun_options,
           {.name = "launch.srun", .meaning = "further options of srun"});
  keys.add(machine.mpiexec_options,
           {.name = "launch.mpiexec", .meaning = "further options of mpiexec"});
  keys.add(machine.flux_options,
           {.name = "launch.flux", .meaning = "further options of flux run"});
  keys.add(machine.wrapper,
           {.name = "launch.wrapper", .meaning = "command in front of the program"});
  keys.add(machine.device_variable, {.name = "launch.device_variable",
                                     .meaning = "variable that names the GPU of a rank"});
  keys.add(machine.devices,
           {.name = "launch.devices",
            .meaning = "GPUs in the order of a node's ranks; empty: 0, 1, 2, ...",
            .range = {.low = 0, .high = 4095}});
}

bool is_identifier(const std::string& text) {
  const auto allowed = [](unsigned char c) { return std::isalnum(c) != 0 || c == '_'; };
  return !text.empty() && std::isdigit(static_cast<unsigned char>(text[0])) == 0 &&
         std::all_of(text.begin(), text.end(), allowed);
}

void check_machine(const io::Deck& file, const MachineDescription& machine) {
  for (const std::string& variable : machine.variables) {
    const auto equals = variable.find('=');
    PLEAT_REQUIRE(
        equals != std::string::npos && is_identifier(variable.substr(0, equals)),
        InputError, "PL0942",
        "{}: environment.variables: found \"{}\", expected \"NAME=value\"",
        file.where("environment.variables"), variable);
  }
  PLEAT_REQUIRE(
      machine.device_variable.empty() || is_identifier(machine.device_variable),
      InputError, "PL0942",
      "{}: launch.device_variable: found \"{}\", expected the name of a variable",
      file.where("launch.device_variable"), machine.device_variable);
  const auto devices = static_cast<std::int64_t>(machine.devices.size());
  PLEAT_REQUIRE(devices == 0 || devices == machine.gpus, InputError, "PL0942",
                "{}: launch.devices: found {} GPUs, expected the {} of machine.gpus",
                file.where("launch.devices"), devices, machine.gpus);
}

std::vector<std::string> known_machines() {
  std::vector<std::string> names;
  for (const std::filesystem::path file : io::names_in_folder(PLEAT_MACHINES_FOLDER)) {
    if (file.extension() == ".toml") names.push_back(file.stem().string());
  }
  std::sort(names.begin(), names.end());
  return names;
}

std::string path_of_machine(const std::string& name) {
  const bool is_path = name.ends_with(".toml") || name.find('/') != std::string::npos;
  const std::string path =
      is_path ? name : fmt::format("{}/{}.toml", PLEAT_MACHINES_FOLDER, name);
  if (io::is_plain_file(path)) return path;
  const std::vector<std::string> known = known_machines();
  const std::string nearest = is_path ? "" : nearest_spelling(name, known);
  PLEAT_FAIL(InputError, "PL0941",
             "there is no machine '{}'\nHINT: {}known are {}; or "
             "describe yours in a file and give its path, which ends in .toml "
             "(docs/batch.md).",
             name, nearest.empty() ? "" : fmt::format("did you mean '{}'? ", nearest),
             fmt::join(known, ", "));
}

}  // namespace

MachineDescription read_machine(const std::string& name) {
  MachineDescription machine;
  io::DeckKeys keys;
  declare_machine(keys, machine);
  declare_job(keys, machine);
  declare_environment(keys, machine);
  declare_launch(keys, machine);
  const io::Deck file(path_of_machine(name), {}, keys);
  file.store(keys);
  check_machine(file, machine);
  return machine;
}

}  // namespace pleat::cli
