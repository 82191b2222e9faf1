// SPDX-License-Identifier: Apache-2.0
#include "inspect_model.hpp"

#include <cstdio>
#include <vector>

#include <fmt/format.h>

#include "inspect_text.hpp"
#include "pleat/base/error.hpp"
#include "pleat/io/hugging_face.hpp"
#include "pleat/model/parameters.hpp"

namespace pleat::cli {

namespace {

/// The details have been shown; this is for the exit code and for who reads errors only.
void require_sound(const std::string& what, const std::vector<std::string>& damages) {
  PLEAT_REQUIRE(damages.empty(), InputError, "PL0925", "'{}' is damaged in {} place{}: {}{}",
                what, damages.size(), damages.size() == 1 ? "" : "s", damages.front(),
                damages.size() == 1 ? "" : " ...");
}

void print_objects(const io::Hdf5Group& group) {
  for (const std::string& name : group.attribute_names()) {
    fmt::print("{} @{} = {}\n", group.path(), name, group.attribute_text(name));
  }
  for (const std::string& name : group.children()) {
    if (group.is_group(name)) {
      print_objects(group.group(name));
      continue;
    }
    const io::Hdf5Dataset dataset = group.dataset(name);
    fmt::print("{} {} {}\n", dataset.path(), dataset.type_text(),
               shape_text(dataset.shape()));
  }
}

}  // namespace

void inspect_checkpoint(const std::string& path, const InspectOptions& options) {
  const CheckpointFacts facts = checkpoint_facts(path, options.statistics);
  if (options.json) {
    std::fputs(checkpoint_json(facts).c_str(), stdout);
  } else {
    print_checkpoint(facts, options);
  }
  require_sound(path, facts.damages());
}

bool inspect_run(const std::string& folder, const InspectOptions& options) {
  const std::optional<RunFacts> facts = run_facts(folder, options.statistics);
  if (!facts) return false;
  if (options.json) {
    std::fputs(run_json(*facts).c_str(), stdout);
  } else {
    print_run(*facts, options);
  }
  std::vector<std::string> damages;
  for (const CheckpointFacts& checkpoint : facts->checkpoints) {
    const auto more = checkpoint.damages();
    damages.insert(damages.end(), more.begin(), more.end());
  }
  require_sound(folder, damages);
  return true;
}

void inspect_safetensors(const std::string& path, const InspectOptions& options) {
  const io::SafetensorsReader reader(path);
  Totals totals;
  for (const io::SafetensorsEntry& entry : reader.entries()) {
    totals.add(entry.type, entry.shape);
    if (!options.tensors && !options.statistics) continue;
    const std::string numbers =
        options.statistics
            ? statistics_text(statistics_of(entry.type, reader.read_raw(entry)))
            : "";
    fmt::print("  {:60} {:4} {:16}{}\n", entry.name, io::element_name(entry.type),
               shape_text(entry.shape), numbers);
  }
  for (const std::string& file : reader.files())
    fmt::print("safetensors file         {}\n", file);
  fmt::print("tensors                  {}\n", totals.text());
  if (!io::is_hugging_face_folder(path)) return;
  const io::HuggingFaceConfig config = io::read_hugging_face_config(path);
  fmt::print("model                    {}\n", model_text(config.model));
  std::fflush(stdout);  // before the message, where both go to one place
  io::check_hugging_face_tensors(reader, *model::parameter_layout(config.model));
  fmt::print("config.json              names and shapes of all tensors agree with it\n");
}

void inspect_hdf5(const std::string& path) {
  const io::Hdf5File file = io::Hdf5File::open_read(path);
  fmt::print("HDF5 file                {}\n", path);
  print_objects(file.root());
}

}  // namespace pleat::cli
