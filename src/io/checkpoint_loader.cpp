// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <array>
#include <functional>
#include <future>

#include "agreement.hpp"
#include "byte_archive.hpp"
#include "checkpoint_table.hpp"
#include "mpi_file.hpp"
#include "plain_file.hpp"
#include "pleat/base/error.hpp"
#include "pleat/comm/check_mpi.hpp"
#include "pleat/io/checkpoint.hpp"
#include "pleat/io/checksum.hpp"
#include "transfer.hpp"

namespace pleat::io {

namespace {

/// Where elements of a tensor go in memory.
struct Target {
  std::size_t tensor = 0;
  bool counted = true;
  bool in_place = true;  ///< read straight into its memory, else through `put`
  /// Converts elements, the first of which has this number in the box.
  std::function<void(std::int64_t first, std::span<const std::byte>)> put = {};
};

/// A tensor of the file and what was read of it.
struct Progress {
  const std::string* path = nullptr;
  const StoredTensor* stored = nullptr;
  std::uint64_t checksum = 0;  ///< of this rank's counted elements
  std::uint64_t touched = 0;
};

/// What the first rank found in the file.
std::string read_table(const std::string& path) {
  const Hdf5Lock lock;
  const CheckpointReader reader(path);
  for (const auto& [name, stored] : reader.tensors()) {
    PLEAT_REQUIRE(stored.offset >= 0 || stored.bytes() == 0, InputError, "PL0313",
                  "{}: the elements of '{}' do not lie one after the other\nHINT: make them "
                  "so with `h5repack -l CONTI OLD NEW`.",
                  path, name);
  }
  ByteWriter bytes;
  bytes.put(pack_checkpoint_info(reader.info()));
  bytes.put(pack_tensors(reader.tensors()));
  return bytes.take();
}

}  // namespace

struct CheckpointLoader::State final : RoundMover {
  State(std::string path, MPI_Comm comm, const CheckpointHints& hints);

  void add(Piece piece, Target target);
  void read();

  Round take_long() override;
  Round take_short(std::int64_t end) override;
  std::int64_t next_short() const override { return queue.next_short(); }
  void moved(Round& round) override;

  std::string path;
  MPI_Comm comm;
  CheckpointHints hints;
  CheckpointInfo info;
  StoredTensors tensors;
  std::vector<Progress> progress;
  std::map<std::string, std::size_t> numbers;  ///< by path
  std::optional<MpiFile> file;
  std::optional<PlainFile> plain;
  PieceQueue queue;
  std::vector<Target> targets;  ///< by the number in Piece::tensor

 private:
  void place_staged(Round& round);
  void take_over(Round& round);
  void verify();

  /// Elements to be converted, of the rounds that are verified, read and to be read next.
  std::array<std::vector<std::byte>, 3> staged_;
  std::size_t staging_ = 0;       ///< which of them the next round is read into
  std::future<void> taken_over_;  ///< the round that was read last
};

CheckpointLoader::State::State(std::string path_, MPI_Comm comm_,
                               const CheckpointHints& hints_)
    : path(std::move(path_)),
      comm(comm_),
      hints(hints_),
      queue(hints.collective_buffering, PlainFile::Access::kRead, comm_) {
  std::string packed;
  on_first_rank(comm, [&] { packed = read_table(path); });
  broadcast(comm, packed);
  ByteReader bytes(packed);
  info = unpack_checkpoint_info(bytes.get<std::string>());
  tensors = unpack_tensors(bytes.get<std::string>());
  for (const auto& [name, stored] : tensors) {
    numbers.emplace(name, progress.size());
    progress.push_back({.path = &name, .stored = &stored});
  }
  throw_alike(comm, failure_of([&] {
    file.emplace(path, comm, MpiFile::Access::kRead, hints);
  }));
  throw_alike(comm, failure_of([&] { plain.emplace(path, PlainFile::Access::kRead); }));
}

void CheckpointLoader::State::add(Piece piece, Target target) {
  progress[target.tensor].touched = 1;
  piece.tensor = targets.size();
  targets.push_back(std::move(target));
  queue.add(std::move(piece));
}

Round CheckpointLoader::State::take_long() {
  Round round = queue.take_long(hints.round_bytes);
  place_staged(round);
  return round;
}

Round CheckpointLoader::State::take_short(std::int64_t end) {
  Round round = queue.take_short(end);
  place_staged(round);
  return round;
}

/// Gives memory to those parts that have none of their own.
void CheckpointLoader::State::place_staged(Round& round) {
  std::size_t bytes = 0;
  for (const RoundPart& part : round.parts) {
    if (part.memory == nullptr) bytes += static_cast<std::size_t>(part.bytes);
  }
  if (bytes == 0) return;
  std::vector<std::byte>& staged = staged_[staging_];
  staging_ = (staging_ + 1) % staged_.size();
  if (staged.size() < bytes) staged.resize(bytes);
  std::byte* next = staged.data();
  for (RoundPart& part : round.parts) {
    if (part.memory != nullptr) continue;
    part.memory = next;
    for (FileRun& run : round.runs_of(part)) {
      run.memory = next;
      next += run.bytes;
    }
  }
}

/// While it is verified and converted, the next one is read.
void CheckpointLoader::State::moved(Round& round) {
  if (taken_over_.valid()) taken_over_.get();
  taken_over_ = begin_beside(round, [this](Round& read) { take_over(read); });
}

void CheckpointLoader::State::take_over(Round& round) {
  for (const RoundPart& part : round.parts) {
    const Target& target = targets[part.tensor];
    Progress& tensor = progress[target.tensor];
    const StoredTensor& stored = *tensor.stored;
    const auto size = static_cast<std::int64_t>(element_size(stored.type));
    for (const FileRun& run : round.runs_of(part)) {
      if (!target.counted) break;
      tensor.checksum += content_checksum(
          stored.type, {run.memory, static_cast<std::size_t>(run.bytes)},
          static_cast<std::uint64_t>((run.offset - stored.offset) / size));
    }
    if (!target.in_place) {
      target.put(part.first_element, {part.memory, static_cast<std::size_t>(part.bytes)});
    }
  }
}

void CheckpointLoader::State::read() {
  try {
    move_rounds(*file, plain, comm, hints, *this);
    throw_alike(comm, failure_of([&] {
      if (taken_over_.valid()) taken_over_.get();
    }));
  } catch (...) {
    taken_over_ = {};  // waits
    throw;
  }
  verify();
  targets.clear();
}

void CheckpointLoader::State::verify() {
  std::vector<std::uint64_t> sums;
  for (const Progress& tensor : progress) {
    sums.push_back(tensor.checksum);
    sums.push_back(tensor.touched);
  }
  PLEAT_CHECK_MPI(MPI_Allreduce(MPI_IN_PLACE, sums.data(), static_cast<int>(sums.size()),
                                MPI_UINT64_T, MPI_SUM, comm));
  for (std::size_t i = 0; i < progress.size(); ++i) {
    const Progress& tensor = progress[i];
    if (sums[2 * i + 1] == 0) continue;
    require_checksum(sums[2 * i], tensor.stored->checksum, path + ": " + *tensor.path);
  }
}

CheckpointLoader::CheckpointLoader(const std::string& path, MPI_Comm comm,
                                   const CheckpointHints& hints)
    : state_(std::make_unique<State>(path, comm, hints)) {}

CheckpointLoader::~CheckpointLoader() = default;

const CheckpointInfo& CheckpointLoader::info() const { return state_->info; }

void CheckpointLoader::require_tensors(TensorGroup group,
                                       const tensor::ParameterLayout& whole) const {
  require_same_tensors(state_->path, state_->tensors, group, whole);
}

void CheckpointLoader::require_optimizer_state() const {
  require_moments(state_->path,
                  !names_of(state_->tensors, TensorGroup::kFirstMoment).empty() &&
                      !names_of(state_->tensors, TensorGroup::kSecondMoment).empty());
}

template <class T>
void CheckpointLoader::add(TensorGroup group, const tensor::ParameterSpec& parameter,
                           const tensor::Range& in_box, std::span<T> elements, bool counted) {
  const auto number = state_->numbers.find(tensor_path(group, parameter.name));
  PLEAT_ASSERT(number != state_->numbers.end(), "'{}' is not in {} of '{}'", parameter.name,
               group_path(group), state_->path);
  const StoredTensor& stored = *state_->progress[number->second].stored;
  PLEAT_ASSERT(stored.shape == parameter.global_shape, "'{}' is stored with another shape",
               parameter.name);
  PLEAT_ASSERT(in_box.begin >= 0 && in_box.end <= parameter.local_count() &&
                   static_cast<std::int64_t>(elements.size()) == in_box.size(),
               "{} elements are not {} to {} of '{}'", elements.size(), in_box.begin,
               in_box.end, parameter.name);
  Target target{.tensor = number->second,
                .counted = counted,
                .in_place = stored.type == kElementTypeOf<T>};
  if (!target.in_place) {
    target.put = [=, type = stored.type](std::int64_t first, std::span<const std::byte> bytes) {
      const auto begin = static_cast<std::size_t>(first - in_box.begin);
      decode_elements<T>(type, bytes,
                         elements.subspan(begin, bytes.size() / element_size(type)));
    };
  }
  state_->add({.tensor_offset = stored.offset,
               .element_bytes = static_cast<std::int64_t>(element_size(stored.type)),
               .global_shape = parameter.global_shape,
               .local_shape = parameter.local_shape,
               .local_offset = parameter.local_offset,
               .range = in_box,
               .memory = target.in_place ? std::as_writable_bytes(elements).data() : nullptr},
              std::move(target));
}

void CheckpointLoader::read() { state_->read(); }

template void CheckpointLoader::add(TensorGroup, const tensor::ParameterSpec&,
                                    const tensor::Range&, std::span<float>, bool);
template void CheckpointLoader::add(TensorGroup, const tensor::ParameterSpec&,
                                    const tensor::Range&, std::span<double>, bool);

}  // namespace pleat::io
