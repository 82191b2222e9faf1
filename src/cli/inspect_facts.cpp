// SPDX-License-Identifier: Apache-2.0
#include "inspect_facts.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <ctime>
#include <filesystem>
#include <limits>
#include <sstream>

#include <sys/stat.h>

#include "pleat/base/error.hpp"
#include "pleat/io/durable_file.hpp"
#include "pleat/io/places.hpp"

namespace pleat::cli {

namespace fs = std::filesystem;

namespace {

using io::TensorGroup;

constexpr std::array<TensorGroup, 3> kGroups{
    TensorGroup::kParameters, TensorGroup::kFirstMoment, TensorGroup::kSecondMoment};

std::string utc_text(std::time_t time) {
  std::tm parts{};
  gmtime_r(&time, &parts);
  std::array<char, 32> text{};
  std::strftime(text.data(), text.size(), "%Y-%m-%dT%H:%M:%SZ", &parts);
  return text.data();
}

void add_file_facts(CheckpointFacts& facts) {
  struct stat status {};
  if (stat(facts.path.c_str(), &status) != 0) return;
  facts.bytes = status.st_size;
  facts.modified = utc_text(status.st_mtime);
}

/// A tensor is read in one piece only where its numbers are wanted.
TensorFacts tensor_facts(const io::CheckpointReader& reader, TensorGroup group,
                         const std::string& name, bool statistics) {
  TensorFacts facts{.group = group,
                    .name = name,
                    .type = reader.stored_type(group, name),
                    .shape = reader.shape(group, name),
                    .checksum = reader.stored_checksum(group, name)};
  try {
    if (statistics) {
      facts.statistics = statistics_of(facts.type, reader.read_raw(group, name));
    } else {
      reader.verify(group, name);
    }
  } catch (const Error& error) {
    facts.damage = error.what();
  }
  return facts;
}

bool is_checkpoint_name(const std::string& name) {
  return name.starts_with("step_") && name.ends_with(".h5");
}

/// Newest first: the steps have leading zeros.
std::vector<std::string> names_in(const std::string& folder, bool (*wanted)(const std::string&)) {
  std::vector<std::string> names;
  for (const std::string& name : io::names_in_folder(folder)) {
    if (wanted(name)) names.push_back(name);
  }
  std::sort(names.begin(), names.end(), [](const std::string& a, const std::string& b) {
    return a.size() != b.size() ? a.size() > b.size() : a > b;
  });
  return names;
}

std::string latest_of(const std::string& folder) {
  try {
    const std::string text = io::read_small_file(folder + "/LATEST", 4096);
    return text.substr(0, text.find('\n'));
  } catch (const InputError&) {
    return "";
  }
}

}  // namespace

std::vector<std::string> CheckpointFacts::damages() const {
  std::vector<std::string> texts;
  if (!damage.empty()) texts.push_back(damage);
  for (const TensorFacts& tensor : tensors) {
    if (!tensor.damage.empty()) texts.push_back(tensor.damage);
  }
  return texts;
}

const CheckpointFacts* RunFacts::newest_usable() const {
  for (const bool only_latest : {true, false}) {
    for (const CheckpointFacts& checkpoint : checkpoints) {
      const bool named = fs::path(checkpoint.path).filename() == latest;
      if ((named || !only_latest) && checkpoint.damages().empty()) return &checkpoint;
    }
  }
  return nullptr;
}

std::vector<std::string> lines_of(const std::string& text) {
  std::vector<std::string> lines;
  std::istringstream stream(text);
  for (std::string line; std::getline(stream, line);) lines.push_back(line);
  return lines;
}

Statistics statistics_of(io::ElementType type, std::span<const std::byte> bytes) {
  std::vector<double> values(bytes.size() / io::element_size(type));
  io::decode_elements<double>(type, bytes, values);
  Statistics found{.least = std::numeric_limits<double>::infinity(),
                   .largest = -std::numeric_limits<double>::infinity()};
  double sum = 0.0;
  double squares = 0.0;
  for (const double value : values) {
    if (!std::isfinite(value)) continue;
    found.least = std::min(found.least, value);
    found.largest = std::max(found.largest, value);
    sum += value;
    squares += value * value;
    ++found.finite;
  }
  found.not_finite = static_cast<std::int64_t>(values.size()) - found.finite;
  if (found.finite == 0) return {.not_finite = found.not_finite};
  found.mean = sum / static_cast<double>(found.finite);
  found.rms = std::sqrt(squares / static_cast<double>(found.finite));
  return found;
}

CheckpointFacts checkpoint_facts(const std::string& path, bool statistics) {
  CheckpointFacts facts{.path = path};
  add_file_facts(facts);
  try {
    const io::CheckpointReader reader(path);
    facts.info = reader.info();
    for (const TensorGroup group : kGroups) {
      if (!reader.has(group)) continue;
      for (const std::string& name : reader.names(group)) {
        facts.tensors.push_back(tensor_facts(reader, group, name, statistics));
      }
    }
  } catch (const Error& error) {
    facts.damage = error.what();
  }
  return facts;
}

std::optional<RunFacts> run_facts(const std::string& folder, bool statistics) {
  std::string place = folder + "/checkpoints";
  if (names_in(place, is_checkpoint_name).empty()) place = folder;
  const std::vector<std::string> names = names_in(place, is_checkpoint_name);
  if (names.empty()) return std::nullopt;
  RunFacts facts{.folder = folder, .latest = latest_of(place)};
  facts.unfinished =
      names_in(place, [](const std::string& name) { return name.ends_with(".tmp"); });
  for (const std::string& name : names) {
    CheckpointFacts checkpoint = checkpoint_facts(place + "/" + name, false);
    // The run may go on meanwhile, and keep its newest checkpoints only.
    if (io::is_there(checkpoint.path)) facts.checkpoints.push_back(std::move(checkpoint));
  }
  if (const CheckpointFacts* newest = facts.newest_usable(); newest != nullptr && statistics) {
    facts.checkpoints[static_cast<std::size_t>(newest - facts.checkpoints.data())] =
        checkpoint_facts(newest->path, true);
  }
  return facts;
}

}  // namespace pleat::cli
