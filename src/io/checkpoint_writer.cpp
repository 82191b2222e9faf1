// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <condition_variable>
#include <cstdio>
#include <cstring>
#include <future>
#include <mutex>

#include "agreement.hpp"
#include "checkpoint_table.hpp"
#include "mpi_file.hpp"
#include "plain_file.hpp"
#include "pleat/base/error.hpp"
#include "pleat/comm/check_mpi.hpp"
#include "pleat/io/checkpoint.hpp"
#include "pleat/io/checksum.hpp"
#include "pleat/io/durable_file.hpp"
#include "pleat/io/places.hpp"
#include "transfer.hpp"

namespace pleat::io {

namespace {

constexpr std::string_view kNoChecksum = "0000000000000000";

/// What the file will take at most, elements included.
std::int64_t total_bytes(const CheckpointInfo& info,
                         const std::vector<TensorDeclaration>& tensors,
                         std::int64_t alignment) {
  const auto count = static_cast<std::int64_t>(tensors.size());
  std::int64_t bytes = checkpoint_metadata_bytes(info, count) + count * alignment;
  for (const TensorDeclaration& tensor : tensors) {
    bytes += StoredTensor{.type = tensor.type, .shape = tensor.shape}.bytes();
  }
  return bytes;
}

/// The file with everything but elements and checksums.
StoredTensors make_file(const std::string& path, const CheckpointInfo& info,
                        const std::vector<TensorDeclaration>& tensors,
                        std::int64_t alignment) {
  const Hdf5Lock lock;
  Hdf5File file = Hdf5File::create_serial(path, alignment);
  Hdf5Group root = file.root();
  write_checkpoint_info(root, info);
  root.set_attribute("metadata_checksum", kNoChecksum);
  StoredTensors stored;
  for (const TensorDeclaration& tensor : tensors) {
    const std::string name = tensor_path(tensor.group, tensor.name);
    Hdf5Dataset dataset = root.create_dataset(name, tensor.shape, hdf5_type(tensor.type));
    dataset.set_attribute("checksum", kNoChecksum);
    const StoredTensor entry{.type = tensor.type,
                             .shape = tensor.shape,
                             .offset = dataset.file_offset().value_or(-1)};
    const bool added = stored.emplace(name, entry).second;
    PLEAT_ASSERT(added, "'{}' is declared twice", name);
  }
  file.close();
  return stored;
}

void fill_in_checksums(const std::string& path, const StoredTensors& tensors) {
  const Hdf5Lock lock;
  Hdf5File file = Hdf5File::open_write(path);
  Hdf5Group root = file.root();
  for (const auto& [name, stored] : tensors) {
    root.dataset(name).overwrite_attribute("checksum", checksum_text(stored.checksum));
  }
  root.overwrite_attribute("metadata_checksum",
                           checksum_text(metadata_checksum(root, table_text(tensors))));
  file.close();
}

}  // namespace

struct CheckpointWriter::State final : RoundMover {
  State(std::string path, MPI_Comm comm, const CheckpointHints& hints);
  ~State() override;

  void make(const CheckpointInfo& info, const std::vector<TensorDeclaration>& declared);
  void add(Piece piece);
  void detach();
  void write();
  void begin_alone();
  void write_alone();
  void agree(const std::exception_ptr& failure);
  void seal();

  Round take_long() override;
  Round take_short(std::int64_t end) override;
  std::int64_t next_short() const override;
  void moved(Round& round) override;

  std::string path;
  std::string temporary;
  MPI_Comm comm;
  int rank = 0;
  int hosts = 1;
  CheckpointHints hints;
  StoredTensors tensors;
  std::vector<StoredTensor*> numbered;  ///< by the number in Piece::tensor
  std::map<std::string, std::size_t> numbers;  ///< by path
  std::optional<MpiFile> file;  ///< only write() opens it

 private:
  template <class Take>
  Round begin_round(const Take& take);
  void write_runs();
  void begin_write_back(const Round& round);
  void add_checksums(Round& round);
  void close_file();
  void drop_rest();
  void give_up();
  void remove_temporary();

  bool temporary_is_ours_ = false;  ///< the first rank removes it unless it is sealed
  std::optional<PlainFile> plain_;
  std::unique_ptr<HostStage> stage_;  ///< of write_alone()

  // Between detach() and the thread that writes.
  mutable std::mutex mutex_;
  std::condition_variable round_ended_;
  PieceQueue queue_;
  bool under_way_ = false;  ///< a round, whose memory is being read
  std::int64_t rounds_ended_ = 0;

  std::future<void> checksums_;  ///< of the round that is under way
};

CheckpointWriter::State::State(std::string path_, MPI_Comm comm_,
                               const CheckpointHints& hints_)
    : path(std::move(path_)),
      temporary(path + ".tmp"),
      comm(comm_),
      hosts(hosts_of(comm)),
      hints(hints_),
      queue_(hints.collective_buffering, PlainFile::Access::kWrite, comm) {
  PLEAT_CHECK_MPI(MPI_Comm_rank(comm, &rank));
}

// To free the stage is collective. Without agree() the ranks do not end in step, so it is
// left to the end of the process.
CheckpointWriter::State::~State() {
  static_cast<void>(stage_.release());
  file.reset();
  remove_temporary();
}

void CheckpointWriter::State::remove_temporary() {
  if (temporary_is_ours_) std::remove(temporary.c_str());
  temporary_is_ours_ = false;
}

void CheckpointWriter::State::make(const CheckpointInfo& info,
                                   const std::vector<TensorDeclaration>& declared) {
  std::string packed;
  on_first_rank(comm, [&] {
    std::remove(temporary.c_str());
    temporary_is_ours_ = true;
    // The stripes of a file are laid out when it is made, by MPI-IO, which knows the hints.
    MpiFile(temporary, MPI_COMM_SELF, MpiFile::Access::kCreate, hints).close();
    // HDF5 cannot end in order when its last writes fail, so it must not come to that.
    const auto count = static_cast<std::int64_t>(declared.size());
    claim_space(temporary, total_bytes(info, declared, hints.alignment),
                checkpoint_metadata_bytes(info, count));
    packed = pack_tensors(make_file(temporary, info, declared, hints.alignment));
    const auto size = size_of_file(temporary);
    claim_space(temporary, size, size);
  });
  broadcast(comm, packed);
  tensors = unpack_tensors(packed);
  for (auto& [name, stored] : tensors) {
    numbers.emplace(name, numbered.size());
    numbered.push_back(&stored);
  }
}

void CheckpointWriter::State::add(Piece piece) {
  const std::lock_guard lock(mutex_);
  queue_.add(std::move(piece));
}

// Copies under the mutex: the other thread may end its round meanwhile, but begins no new one.
void CheckpointWriter::State::detach() {
  std::unique_lock lock(mutex_);
  for (Piece* piece : queue_.rest()) {
    if (piece->owner) continue;
    const auto bytes = static_cast<std::size_t>(piece->rest_bytes());
    piece->owner = std::make_shared_for_overwrite<std::byte[]>(bytes);
    std::memcpy(piece->owner.get(), piece->memory, bytes);
    piece->memory = piece->owner.get();
  }
  const std::int64_t seen = rounds_ended_;
  round_ended_.wait(lock, [&] { return !under_way_ || rounds_ended_ != seen; });
}

void CheckpointWriter::State::moved(Round& round) {
  begin_write_back(round);
  checksums_.get();
  const std::lock_guard lock(mutex_);
  under_way_ = false;
  ++rounds_ended_;
  round_ended_.notify_all();
}

/// Its checksums are formed while it is written.
template <class Take>
Round CheckpointWriter::State::begin_round(const Take& take) {
  Round round;
  {
    const std::lock_guard lock(mutex_);
    round = take();
    under_way_ = !round.runs.empty();
  }
  checksums_ = begin_beside(round, [this](Round& begun) { add_checksums(begun); });
  return round;
}

Round CheckpointWriter::State::take_long() {
  return begin_round([&] { return queue_.take_long(hints.round_bytes); });
}

Round CheckpointWriter::State::take_short(std::int64_t end) {
  return begin_round([&] { return queue_.take_short(end); });
}

std::int64_t CheckpointWriter::State::next_short() const {
  const std::lock_guard lock(mutex_);
  return queue_.next_short();
}

/// The disk works while the next round is prepared. Short runs share pages with those of other
/// ranks, which would go to the disk several times.
void CheckpointWriter::State::begin_write_back(const Round& round) {
  constexpr std::int64_t kLong = 256 << 10;
  for (const FileRun& run : round.runs) {
    if (run.bytes >= kLong) plain_->begin_write_back(run.offset, run.bytes);
  }
}

void CheckpointWriter::State::add_checksums(Round& round) {
  for (const RoundPart& part : round.parts) {
    StoredTensor& stored = *numbered[part.tensor];
    const auto size = static_cast<std::int64_t>(element_size(stored.type));
    for (const FileRun& run : round.runs_of(part)) {
      stored.checksum += content_checksum(
          stored.type, {run.memory, static_cast<std::size_t>(run.bytes)},
          static_cast<std::uint64_t>((run.offset - stored.offset) / size));
    }
  }
}

void CheckpointWriter::State::write() {
  try {
    if (!file) {
      throw_alike(comm, failure_of([&] {
        file.emplace(temporary, comm, MpiFile::Access::kWrite, hints);
      }));
      throw_alike(comm, failure_of([&] {
                    plain_.emplace(temporary, PlainFile::Access::kWrite);
                  }));
    }
    move_rounds(*file, plain_, comm, hints, *this);
  } catch (...) {
    give_up();
    throw;
  }
}

void CheckpointWriter::State::begin_alone() { stage_ = make_stage(comm, hints, *this); }

/// Of long runs, or of all where nothing is gathered.
void CheckpointWriter::State::write_runs() {
  if (!plain_) plain_.emplace(temporary, PlainFile::Access::kWrite);
  const auto take = [&] {
    return stage_ ? queue_.take_long(hints.round_bytes)
                  : queue_.take_any(hints.round_bytes);
  };
  for (Round round = begin_round(take); !round.runs.empty(); round = begin_round(take)) {
    for (const FileRun& run : round.runs) {
      plain_->write_at(run.offset, {run.memory, static_cast<std::size_t>(run.bytes)});
    }
    moved(round);
  }
}

void CheckpointWriter::State::write_alone() {
  std::exception_ptr failure = failure_of([&] { write_runs(); });
  if (stage_) failure = move_staged(*stage_, plain_, *this, failure);
  // Beside the steps, so that little is left for seal(), for which they may wait.
  if (!failure) failure = failure_of([&] { plain_->sync(); });
  if (!failure) return;
  drop_rest();
  std::rethrow_exception(failure);
}

/// Nothing more is written; nobody waits for a round.
void CheckpointWriter::State::drop_rest() {
  checksums_ = {};  // waits
  const std::lock_guard lock(mutex_);
  queue_.clear();
  under_way_ = false;
  round_ended_.notify_all();
}

/// After a failure that all ranks know of.
void CheckpointWriter::State::give_up() {
  drop_rest();
  file.reset();
  remove_temporary();
}

void CheckpointWriter::State::close_file() {
  const std::exception_ptr not_synced = failure_of([&] {
    if (hosts > 1) file->sync();
  });
  const std::exception_ptr not_closed = failure_of([&] { file->close(); });
  file.reset();
  throw_alike(comm, not_synced ? not_synced : not_closed);
}

void CheckpointWriter::State::agree(const std::exception_ptr& failure) {
  stage_.reset();
  try {
    throw_alike(comm, failure);
    if (file) close_file();
  } catch (...) {
    give_up();
    throw;
  }
  std::vector<std::uint64_t> sums;
  for (const StoredTensor* stored : numbered) sums.push_back(stored->checksum);
  PLEAT_CHECK_MPI(MPI_Allreduce(MPI_IN_PLACE, sums.data(), static_cast<int>(sums.size()),
                                MPI_UINT64_T, MPI_SUM, comm));
  for (std::size_t i = 0; i < sums.size(); ++i) numbered[i]->checksum = sums[i];
}

// On one machine this brings to the disk what all ranks wrote with write().
void CheckpointWriter::State::seal() {
  fill_in_checksums(temporary, tensors);
  rename_durably(temporary, path);
  temporary_is_ours_ = false;
}

CheckpointWriter::CheckpointWriter(std::string path, const CheckpointInfo& info,
                                   const std::vector<TensorDeclaration>& tensors,
                                   MPI_Comm comm, const CheckpointHints& hints)
    : state_(std::make_unique<State>(std::move(path), comm, hints)) {
  state_->make(info, tensors);
}

CheckpointWriter::~CheckpointWriter() = default;

void CheckpointWriter::add(TensorGroup group, const tensor::ParameterSpec& parameter,
                           const tensor::Range& in_box, std::span<const std::byte> bytes) {
  const auto number = state_->numbers.find(tensor_path(group, parameter.name));
  PLEAT_ASSERT(number != state_->numbers.end(), "'{}' was not declared", parameter.name);
  const StoredTensor& stored = *state_->numbered[number->second];
  PLEAT_ASSERT(stored.shape == parameter.global_shape, "'{}' was declared with another shape",
               parameter.name);
  const auto size = static_cast<std::int64_t>(element_size(stored.type));
  PLEAT_ASSERT(in_box.begin >= 0 && in_box.end <= parameter.local_count() &&
                   static_cast<std::int64_t>(bytes.size()) == in_box.size() * size,
               "{} bytes are not elements {} to {} of '{}'", bytes.size(), in_box.begin,
               in_box.end, parameter.name);
  if (bytes.empty()) return;
  state_->add({.tensor = number->second,
               .tensor_offset = stored.offset,
               .element_bytes = size,
               .global_shape = parameter.global_shape,
               .local_shape = parameter.local_shape,
               .local_offset = parameter.local_offset,
               .range = in_box,
               .memory = const_cast<std::byte*>(bytes.data())});  // only ever read
}

void CheckpointWriter::write() { state_->write(); }
void CheckpointWriter::detach() { state_->detach(); }
void CheckpointWriter::begin_alone() { state_->begin_alone(); }
void CheckpointWriter::write_alone() { state_->write_alone(); }
void CheckpointWriter::agree(const std::exception_ptr& failure) { state_->agree(failure); }
void CheckpointWriter::seal() { state_->seal(); }

void CheckpointWriter::commit() {
  state_->agree(nullptr);
  on_first_rank(state_->comm, [&] { state_->seal(); });
}

}  // namespace pleat::io
