// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <charconv>
#include <filesystem>

#include "pleat/base/error.hpp"
#include "pleat/comm/check_mpi.hpp"
#include "pleat/io/checkpoint.hpp"
#include "pleat/io/durable_file.hpp"

namespace pleat::io {

namespace fs = std::filesystem;

namespace {

constexpr std::string_view kPrefix = "step_";
constexpr std::string_view kSuffix = ".h5";

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
  std::error_code error;
  for (const fs::directory_entry& entry : fs::directory_iterator(folder, error)) {
    const std::string name = entry.path().filename().string();
    if (const auto step = step_of(name)) found.push_back({*step, name});
  }
  std::sort(found.begin(), found.end(),
            [](const Candidate& a, const Candidate& b) { return a.step > b.step; });
  return found;
}

/// The name in FOLDER/LATEST; empty where there is none.
std::string read_latest(const std::string& folder) {
  const std::string path = folder + "/LATEST";
  if (!fs::exists(path)) return "";
  std::string name = read_small_file(path, 4096);
  name.erase(std::min(name.find('\n'), name.size()));
  return name;
}

/// A warning names what LATEST says where that is of no use.
std::vector<Candidate> candidates_from_latest(const std::string& folder, Log& log) {
  std::vector<Candidate> all = list_checkpoints(folder);
  const std::string latest = read_latest(folder);
  if (latest.empty()) return all;
  const auto found = std::find_if(all.begin(), all.end(),
                                  [&](const Candidate& c) { return c.name == latest; });
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
void write_group(CheckpointWriter& writer, TensorGroup group,
                 const tensor::FlatTensors<T>& tensors) {
  for (const tensor::ParameterSpec& parameter : tensors.layout().parameters()) {
    if (!parameter.written) continue;
    const auto host =
        Kokkos::create_mirror_view_and_copy(Kokkos::HostSpace(), tensors.flat(parameter));
    writer.write<T>(group, parameter, std::span<const T>(host.data(), host.size()));
  }
}

template <class T>
void read_group(const CheckpointReader& reader, TensorGroup group,
                const tensor::FlatTensors<T>& tensors) {
  for (const tensor::ParameterSpec& parameter : tensors.layout().parameters()) {
    const auto device = tensors.flat(parameter);
    const auto host = Kokkos::create_mirror_view(Kokkos::HostSpace(), device);
    reader.read<T>(group, parameter, std::span<T>(host.data(), host.size()));
    Kokkos::deep_copy(device, host);
  }
}

/// What keeps the tensors of a group from being those of the layout.
std::vector<std::string> differences(const CheckpointReader& reader, TensorGroup group,
                                     const tensor::ParameterLayout& layout) {
  std::vector<std::string> found;
  for (const tensor::ParameterSpec& parameter : layout.parameters()) {
    if (!reader.contains(group, parameter.name)) {
      found.push_back(fmt::format("'{}' is missing", parameter.name));
    } else if (reader.shape(group, parameter.name) != parameter.global_shape) {
      found.push_back(fmt::format("'{}' has shape [{}], the model's is [{}]",
                                  parameter.name,
                                  fmt::join(reader.shape(group, parameter.name), ", "),
                                  fmt::join(parameter.global_shape, ", ")));
    }
  }
  for (const std::string& name : reader.names(group)) {
    if (!layout.contains(name)) {
      found.push_back(fmt::format("'{}' is not in the model", name));
    }
  }
  return found;
}

}  // namespace

void check_checkpoint_tensors(const CheckpointReader& reader, TensorGroup group,
                              const tensor::ParameterLayout& layout) {
  constexpr std::size_t kShown = 5;
  std::vector<std::string> found = differences(reader, group, layout);
  if (found.empty()) return;
  const std::size_t all = found.size();
  found.resize(std::min(all, kShown));
  PLEAT_FAIL(InputError, "PL0309",
             "'{}' is a checkpoint of another model; {} of {} differences in {}:\n  {}\n"
             "HINT: compare the deck's [model] and [moe] with `pleat inspect`.",
             reader.path(), found.size(), all, group_path(group),
             fmt::join(found, "\n  "));
}

std::string checkpoint_name(std::int64_t step) {
  return fmt::format("{}{:08}{}", kPrefix, step, kSuffix);
}

template <class T>
std::string save_checkpoint(const std::string& folder, const CheckpointInfo& info,
                            const tensor::ParameterLayout& whole,
                            const tensor::FlatTensors<T>& weights,
                            const tensor::FlatTensors<T>& first_moment,
                            const tensor::FlatTensors<T>& second_moment, MPI_Comm comm) {
  int rank = 0;
  PLEAT_CHECK_MPI(MPI_Comm_rank(comm, &rank));
  std::error_code error;
  if (rank == 0) fs::create_directories(folder, error);
  PLEAT_REQUIRE(!error, IoError, "PL0310", "cannot make the folder '{}': {}", folder,
                error.message());
  const std::string name = checkpoint_name(info.step);
  const std::string path = folder + "/" + name;
  if (rank == 0) {
    const std::int64_t elements = 3 * whole.global_count();
    const auto tensors = static_cast<std::int64_t>(3 * whole.parameters().size());
    require_space(path,
                  checkpoint_bytes(info, tensors, elements * std::int64_t{sizeof(T)}));
  }
  PLEAT_CHECK_MPI(MPI_Barrier(comm));  // the folder is there
  CheckpointWriter writer(path, info, comm);
  for (const TensorGroup group : {TensorGroup::kParameters, TensorGroup::kFirstMoment,
                                  TensorGroup::kSecondMoment}) {
    for (const tensor::ParameterSpec& parameter : whole.parameters()) {
      writer.declare(group, parameter, kElementTypeOf<T>);
    }
  }
  write_group(writer, TensorGroup::kParameters, weights);
  write_group(writer, TensorGroup::kFirstMoment, first_moment);
  write_group(writer, TensorGroup::kSecondMoment, second_moment);
  writer.commit();
  if (rank == 0) write_durably(folder + "/LATEST", name + "\n");
  return path;
}

template <class T>
CheckpointInfo load_checkpoint(const std::string& path,
                               const tensor::ParameterLayout& whole,
                               const tensor::FlatTensors<T>& weights,
                               const tensor::FlatTensors<T>& first_moment,
                               const tensor::FlatTensors<T>& second_moment) {
  const CheckpointReader reader(path);
  check_checkpoint_tensors(reader, TensorGroup::kParameters, whole);
  PLEAT_REQUIRE(
      reader.has(TensorGroup::kFirstMoment) && reader.has(TensorGroup::kSecondMoment),
      InputError, "PL0311",
      "'{}' holds weights only, no optimizer state to continue from\nHINT: start a "
      "new run from these weights with model.init.",
      path);
  check_checkpoint_tensors(reader, TensorGroup::kFirstMoment, whole);
  check_checkpoint_tensors(reader, TensorGroup::kSecondMoment, whole);
  read_group(reader, TensorGroup::kParameters, weights);
  read_group(reader, TensorGroup::kFirstMoment, first_moment);
  read_group(reader, TensorGroup::kSecondMoment, second_moment);
  return reader.info();
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

std::optional<std::string> find_resume_checkpoint(const std::string& folder, Log& log) {
  const std::vector<Candidate> candidates = candidates_from_latest(folder, log);
  for (const Candidate& candidate : candidates) {
    const std::string path = folder + "/" + candidate.name;
    try {
      CheckpointReader(path).verify_all();
      return path;
    } catch (const InputError& error) {
      log.warn("checkpoint '{}' cannot be used: {}", path, error.what());
    }
  }
  PLEAT_REQUIRE(
      candidates.empty(), InputError, "PL0312",
      "no checkpoint in '{}' can be used\nHINT: checkpoint.resume = \"none\" starts "
      "the run anew and overwrites them.",
      folder);
  return std::nullopt;
}

void prune_checkpoints(const std::string& folder, std::int64_t keep) {
  if (keep <= 0) return;
  const std::string latest = read_latest(folder);
  const std::vector<Candidate> all = list_checkpoints(folder);
  for (std::size_t i = static_cast<std::size_t>(keep); i < all.size(); ++i) {
    if (all[i].name != latest) fs::remove(folder + "/" + all[i].name);
  }
  for (const fs::directory_entry& entry : fs::directory_iterator(folder)) {
    const fs::path& path = entry.path();
    if (path.extension() == ".tmp" && step_of(path.stem().string())) fs::remove(path);
  }
}

template std::string save_checkpoint(const std::string&, const CheckpointInfo&,
                                     const tensor::ParameterLayout&,
                                     const tensor::FlatTensors<float>&,
                                     const tensor::FlatTensors<float>&,
                                     const tensor::FlatTensors<float>&, MPI_Comm);
template std::string save_checkpoint(const std::string&, const CheckpointInfo&,
                                     const tensor::ParameterLayout&,
                                     const tensor::FlatTensors<double>&,
                                     const tensor::FlatTensors<double>&,
                                     const tensor::FlatTensors<double>&, MPI_Comm);
template CheckpointInfo load_checkpoint(const std::string&,
                                        const tensor::ParameterLayout&,
                                        const tensor::FlatTensors<float>&,
                                        const tensor::FlatTensors<float>&,
                                        const tensor::FlatTensors<float>&);
template CheckpointInfo load_checkpoint(const std::string&,
                                        const tensor::ParameterLayout&,
                                        const tensor::FlatTensors<double>&,
                                        const tensor::FlatTensors<double>&,
                                        const tensor::FlatTensors<double>&);
template CheckpointInfo load_parameters(const std::string&,
                                        const tensor::ParameterLayout&,
                                        const tensor::FlatTensors<float>&);
template CheckpointInfo load_parameters(const std::string&,
                                        const tensor::ParameterLayout&,
                                        const tensor::FlatTensors<double>&);

}  // namespace pleat::io
