// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <charconv>
#include <filesystem>
#include <limits>

#include "pleat/base/copy.hpp"
#include "pleat/base/error.hpp"
#include "pleat/io/checkpoint.hpp"
#include "pleat/io/durable_file.hpp"
#include "pleat/io/places.hpp"

namespace pleat::io {

namespace fs = std::filesystem;

namespace {

constexpr std::string_view kPrefix = "step_";
constexpr std::string_view kSuffix = ".h5";
constexpr std::int64_t kNoStep = std::numeric_limits<std::int64_t>::max();

/// The step in "step_00000020.h5".
std::optional<std::int64_t> step_of(std::string_view name) {
  if (!name.starts_with(kPrefix) || !name.ends_with(kSuffix)) return std::nullopt;
  name.remove_prefix(kPrefix.size());
  name.remove_suffix(kSuffix.size());
  std::int64_t step = -1;
  const char* end = name.data() + name.size();
  const auto [stop, error] = std::from_chars(name.data(), end, step);
  if (error != std::errc() || stop != end || step < 0) return std::nullopt;
  return step;
}

struct Candidate {
  std::int64_t step;
  std::string name;
};

/// All checkpoints of a folder, newest first.
std::vector<Candidate> list_checkpoints(const std::string& folder) {
  std::vector<Candidate> found;
  for (const std::string& name : names_in_folder(folder)) {
    if (const auto step = step_of(name)) found.push_back({*step, name});
  }
  std::sort(found.begin(), found.end(),
            [](const Candidate& a, const Candidate& b) { return a.step > b.step; });
  return found;
}

/// What FOLDER/LATEST says.
struct Latest {
  std::string name;   ///< empty: there is no such file, or it is of no use
  std::string fault;  ///< why it is of no use
};

Latest read_latest(const std::string& folder) {
  const std::string path = folder + "/LATEST";
  if (!is_there(path)) return {};
  try {
    std::string name = read_small_file(path, 4096);
    name.erase(std::min(name.find('\n'), name.size()));
    if (step_of(name)) return {.name = name, .fault = ""};
    return {.name = "", .fault = fmt::format("'{}' holds no name of a checkpoint", path)};
  } catch (const InputError& error) {
    return {.name = "", .fault = error.what()};
  }
}

/// A warning says why LATEST is of no use where it is not.
std::vector<Candidate> candidates_from_latest(const std::string& folder, Log& log) {
  std::vector<Candidate> all = list_checkpoints(folder);
  const auto [latest, fault] = read_latest(folder);
  if (!fault.empty()) log.warn("{}; looking for the newest checkpoint", fault);
  if (latest.empty()) return all;
  const auto is_latest = [&name = latest](const Candidate& c) { return c.name == name; };
  const auto found = std::find_if(all.begin(), all.end(), is_latest);
  if (found == all.end()) {
    log.warn(
        "{}/LATEST names '{}', which is not there; looking for the newest checkpoint",
        folder, latest);
    return all;
  }
  std::rotate(all.begin(), found, all.end());  // LATEST, older ones, then newer ones
  return all;
}

template <class T>
void read_group(const CheckpointReader& reader, TensorGroup group,
                const tensor::FlatTensors<T>& tensors) {
  for (const tensor::ParameterSpec& parameter : tensors.layout().parameters()) {
    const auto device = tensors.flat(parameter);
    const auto host = host_mirror(device);
    reader.read<T>(group, parameter, std::span<T>(host.data(), host.size()));
    copy_tensor(device, host);
  }
}

}  // namespace

std::string checkpoint_name(std::int64_t step) {
  return fmt::format("{}{:08}{}", kPrefix, step, kSuffix);
}

void require_step_of_name(const std::string& path, std::int64_t step) {
  const auto named = step_of(fs::path(path).filename().string());
  PLEAT_REQUIRE(!named || *named == step, InputError, "PL0315",
                "'{}' holds the checkpoint of step {}, which is not that of its name\n"
                "HINT: name it {}, or take it away.",
                path, step, checkpoint_name(step));
}

template <class T>
CheckpointInfo load_parameters(const std::string& path,
                               const tensor::ParameterLayout& whole,
                               const tensor::FlatTensors<T>& weights) {
  const CheckpointReader reader(path);
  check_checkpoint_tensors(reader, TensorGroup::kParameters, whole);
  read_group(reader, TensorGroup::kParameters, weights);
  return reader.info();
}

std::vector<std::string> resume_candidates(const std::string& folder, Log& log) {
  std::vector<std::string> paths;
  for (const Candidate& candidate : candidates_from_latest(folder, log)) {
    paths.push_back(folder + "/" + candidate.name);
  }
  return paths;
}

std::optional<std::string> find_resume_checkpoint(const std::string& folder, Log& log) {
  const std::vector<std::string> candidates = resume_candidates(folder, log);
  for (const std::string& path : candidates) {
    try {
      const CheckpointReader reader(path);
      require_step_of_name(path, reader.info().step);
      reader.verify_all();
      return path;
    } catch (const InputError& error) {
      log.warn("checkpoint '{}' cannot be used: {}", path, error.what());
    }
  }
  PLEAT_REQUIRE(
      candidates.empty(), InputError, "PL0312",
      "no checkpoint in '{}' can be used\nHINT: checkpoint.resume = \"none\" sets them "
      "aside and starts the run anew.",
      folder);
  return std::nullopt;
}

std::string find_checkpoint_folder(const std::string& path) {
  for (const std::string& folder : {path + "/checkpoints", path}) {
    if (!list_checkpoints(folder).empty()) return folder;
  }
  return "";
}

std::string newest_checkpoint(const std::string& path) {
  const std::string folder = find_checkpoint_folder(path);
  if (folder.empty()) return "";
  Log silent(false, stderr);
  return resume_candidates(folder, silent).front();
}

void warn_of_newer_checkpoints(const std::string& folder, Log& log) {
  const auto latest = step_of(read_latest(folder).name);
  if (!latest || !is_there(folder + "/" + checkpoint_name(*latest))) return;
  for (const Candidate& candidate : list_checkpoints(folder)) {
    if (candidate.step <= *latest) break;
    log.warn("checkpoint '{}/{}' is newer than the one that LATEST names, of step {}, and is "
             "left alone",
             folder, candidate.name, *latest);
  }
}

void move_latest(const std::string& folder, const std::string& name) {
  const std::string path = folder + "/LATEST";
  if (is_folder(path)) set_aside(path);
  write_durably(path, name + "\n");
}

void let_latest_name(const std::string& path) {
  const std::string folder = folder_of(path);
  const std::string name = fs::path(path).filename().string();
  if (read_latest(folder).name == name) return;
  if (step_of(name)) {
    move_latest(folder, name);
  } else {  // not among the candidates; without LATEST those are taken newest first
    const std::string latest = folder + "/LATEST";
    std::error_code error;
    fs::remove_all(latest, error);
    PLEAT_REQUIRE(!error, IoError, "PL0310", "cannot remove '{}': {}", latest,
                  error.message());
  }
}

void set_newer_checkpoints_aside(const std::string& folder, std::int64_t step, Log& log) {
  for (const Candidate& candidate : list_checkpoints(folder)) {
    if (candidate.step <= step) break;
    const std::string path = folder + "/" + candidate.name;
    log.warn("'{}', of a later step than the run goes on from, is kept as '{}'", path,
             set_aside(path));
  }
}

void prune_checkpoints(const std::string& folder, const Retention& retention) {
  const std::string latest = read_latest(folder).name;
  const std::int64_t latest_step = step_of(latest).value_or(kNoStep);
  std::string failure;  // the first one; the other files go all the same
  const auto remove = [&failure](const fs::path& path) {
    std::error_code error;
    fs::remove(path, error);
    if (error && failure.empty()) {
      failure = fmt::format("'{}': {}", path.string(), error.message());
    }
  };
  std::int64_t regular = 0;  // newer than the one at hand
  for (const Candidate& candidate : list_checkpoints(folder)) {
    if (candidate.step > latest_step) continue;  // passed over: no job goes on from it
    const bool stays = retention.newest == 0 || regular < retention.newest ||
                       (retention.every > 0 && candidate.step % retention.every == 0);
    if (!stays && candidate.name != latest) remove(folder + "/" + candidate.name);
    if (retention.regular == 0 || candidate.step % retention.regular == 0) ++regular;
  }
  for (const std::string& name : names_in_folder(folder)) {
    const fs::path left_behind(name);
    if (left_behind.extension() == ".tmp" && step_of(left_behind.stem().string()))
      remove(folder / left_behind);
  }
  PLEAT_REQUIRE(failure.empty(), IoError, "PL0310", "cannot remove {}", failure);
}

template CheckpointInfo load_parameters(const std::string&,
                                        const tensor::ParameterLayout&,
                                        const tensor::FlatTensors<float>&);
template CheckpointInfo load_parameters(const std::string&,
                                        const tensor::ParameterLayout&,
                                        const tensor::FlatTensors<double>&);

}  // namespace pleat::io
