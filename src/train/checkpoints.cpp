// SPDX-License-Identifier: Apache-2.0
#include "pleat/train/checkpoints.hpp"

#include <algorithm>
#include <array>
#include <chrono>
#include <condition_variable>
#include <exception>
#include <mutex>
#include <span>
#include <thread>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "pleat/base/error.hpp"
#include "pleat/base/failure.hpp"
#include "pleat/comm/check_mpi.hpp"
#include "pleat/comm/text.hpp"
#include "pleat/train/deck_changes.hpp"

namespace pleat::train {
namespace {

using Clock = std::chrono::steady_clock;
using io::TensorGroup;

constexpr std::array<TensorGroup, 3> kGroups{
    TensorGroup::kParameters, TensorGroup::kFirstMoment, TensorGroup::kSecondMoment};

/// Adds the time until its end to a sum.
class Stopwatch {
 public:
  explicit Stopwatch(double& seconds) : seconds_(seconds) {}
  ~Stopwatch() { seconds_ += elapsed(); }
  double elapsed() const {
    return std::chrono::duration<double>(Clock::now() - start_).count();
  }

 private:
  double& seconds_;
  Clock::time_point start_ = Clock::now();
};

/// A rank's shards of one group as the host sees them: on a host their own memory, on a device
/// a copy.
template <class T>
class HostShards {
 public:
  using Host = Kokkos::View<T*, Kokkos::LayoutRight, Kokkos::HostSpace>;

  HostShards(TensorGroup group, Engine<T>& engine, bool copy) : group_(group), engine_(engine) {
    const std::size_t buckets = engine.store().layout().buckets().size();
    for (std::size_t b = 0; b < buckets; ++b) {
      const DeviceView<T, 1> shard_N = device(b);
      buckets_.push_back(
          copy ? Host(Kokkos::create_mirror_view_and_copy(Kokkos::HostSpace(), shard_N))
               : Host(Kokkos::create_mirror_view(Kokkos::HostSpace(), shard_N)));
    }
  }

  std::span<T> piece(const ShardPiece& piece) const {
    return {buckets_[piece.bucket].data() + piece.in_shard,
            static_cast<std::size_t>(piece.in_box.size())};
  }

  void copy_to_device() const {
    for (std::size_t b = 0; b < buckets_.size(); ++b) Kokkos::deep_copy(device(b), buckets_[b]);
  }

 private:
  DeviceView<T, 1> device(std::size_t bucket) const {
    const ParameterStore<T>& store = engine_.store();
    if (group_ == TensorGroup::kParameters) return store.weight_shard(bucket);
    const Optimizer<T>& optimizer = engine_.optimizer();
    const DeviceView<T, 1>& moment_N = group_ == TensorGroup::kFirstMoment
                                           ? optimizer.first_moment()
                                           : optimizer.second_moment();
    return DeviceView<T, 1>(moment_N.data() + store.shard_begin(bucket),
                            store.layout().buckets()[bucket].shard_size());
  }

  TensorGroup group_;
  Engine<T>& engine_;
  std::vector<Host> buckets_;
};

std::vector<io::TensorDeclaration> declarations(const tensor::ParameterLayout& whole,
                                                io::ElementType type) {
  std::vector<io::TensorDeclaration> tensors;
  for (const TensorGroup group : kGroups) {
    for (const tensor::ParameterSpec& parameter : whole.parameters()) {
      tensors.push_back({group, parameter.name, parameter.global_shape, type});
    }
  }
  return tensors;
}

}  // namespace

/// One checkpoint under way.
template <class T>
class Checkpoints<T>::Writing {
 public:
  Writing(std::string folder, const io::CheckpointInfo& info, Engine<T>& engine)
      : folder_(std::move(folder)), info_(info) {
    for (const TensorGroup group : kGroups) shards_.emplace_back(group, engine, true);
    pieces_ = engine.store().shard_pieces();
  }
  ~Writing() { join(); }

  /// All of it, on the caller's thread.
  void write(const tensor::ParameterLayout& whole, const io::CheckpointHints& hints,
             const io::Retention& retention, MPI_Comm comm);
  void launch(const tensor::ParameterLayout& whole, const io::CheckpointHints& hints,
              const io::Retention& retention, MPI_Comm comm);
  void detach();
  bool done();
  void join() {
    if (thread_.joinable()) thread_.join();
  }

  std::string path() const { return folder_ + "/" + io::checkpoint_name(info_.step); }
  double seconds() const { return seconds_; }
  const std::exception_ptr& failure() const { return failure_; }

 private:
  void write_all(const tensor::ParameterLayout& whole, const io::CheckpointHints& hints,
                 const io::Retention& retention, MPI_Comm comm);
  void set(bool Writing::*flag);

  std::string folder_;
  io::CheckpointInfo info_;
  std::vector<HostShards<T>> shards_;
  std::vector<ShardPiece> pieces_;
  double seconds_ = 0.0;
  std::exception_ptr failure_;

  std::mutex mutex_;
  std::condition_variable changed_;
  bool opened_ = false;  ///< writer_ is there, or never will be
  bool done_ = false;
  std::unique_ptr<io::CheckpointWriter> writer_;
  std::thread thread_;
};

template <class T>
void Checkpoints<T>::Writing::set(bool Writing::*flag) {
  const std::scoped_lock lock(mutex_);
  this->*flag = true;
  changed_.notify_all();
}

template <class T>
void Checkpoints<T>::Writing::write_all(const tensor::ParameterLayout& whole,
                                        const io::CheckpointHints& hints,
                                        const io::Retention& retention, MPI_Comm comm) {
  int rank = 0;
  PLEAT_CHECK_MPI(MPI_Comm_rank(comm, &rank));
  auto writer = std::make_unique<io::CheckpointWriter>(
      path(), info_, declarations(whole, io::kElementTypeOf<T>), comm, hints);
  for (std::size_t g = 0; g < kGroups.size(); ++g) {
    for (const ShardPiece& piece : pieces_) {
      if (!piece.parameter->counted) continue;
      writer->add(kGroups[g], *piece.parameter, piece.in_box,
                  std::as_bytes(shards_[g].piece(piece)));
    }
  }
  writer_ = std::move(writer);
  set(&Writing::opened_);
  writer_->write();
  writer_->commit();
  if (rank != 0) return;
  io::move_latest(folder_, io::checkpoint_name(info_.step));
  io::prune_checkpoints(folder_, retention);
}

template <class T>
void Checkpoints<T>::Writing::write(const tensor::ParameterLayout& whole,
                                    const io::CheckpointHints& hints,
                                    const io::Retention& retention, MPI_Comm comm) {
  {
    const Stopwatch watch(seconds_);
    try {
      write_all(whole, hints, retention, comm);
    } catch (...) {
      failure_ = std::current_exception();
    }
  }
  set(&Writing::opened_);
  set(&Writing::done_);
}

template <class T>
void Checkpoints<T>::Writing::launch(const tensor::ParameterLayout& whole,
                                     const io::CheckpointHints& hints,
                                     const io::Retention& retention, MPI_Comm comm) {
  thread_ = std::thread([this, &whole, hints, retention, comm] {
    write(whole, hints, retention, comm);
  });
}

template <class T>
void Checkpoints<T>::Writing::detach() {
  {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [this] { return opened_; });
    if (done_) return;
  }
  if (writer_) writer_->detach();
}

template <class T>
bool Checkpoints<T>::Writing::done() {
  const std::scoped_lock lock(mutex_);
  return done_;
}

template <class T>
Checkpoints<T>::Checkpoints(const RunConfig& config, std::string folder, const comm::Grid& grid,
                            bool threads, Log& log)
    : config_(config),
      folder_(std::move(folder)),
      grid_(grid),
      asynchronous_(config.checkpoint.asynchronous && threads),
      log_(log),
      whole_layout_(model::parameter_layout(config.model)),
      comm_(std::make_unique<comm::FileCommunicator>(grid.files())) {
  if (config.checkpoint.asynchronous && !threads) {
    log_.warn("checkpoint.asynchronous: this MPI serves one thread at a time; steps wait for "
              "checkpoints");
  }
}

template <class T>
Checkpoints<T>::~Checkpoints() = default;

/// What the first rank finds in the folder.
template <class T>
std::vector<std::string> Checkpoints<T>::candidates() {
  std::string text;
  if (grid_.rank() == 0) {
    text = fmt::format("{}", fmt::join(io::resume_candidates(folder_, log_), "\n"));
  }
  text = comm::broadcast_text(grid_.group(comm::GroupName::kWorld), text, 0);
  std::vector<std::string> paths;
  for (std::size_t begin = 0; begin < text.size();) {
    const std::size_t end = std::min(text.find('\n', begin), text.size());
    paths.push_back(text.substr(begin, end - begin));
    begin = end + 1;
  }
  return paths;
}

/// Whether the file stood the work; a warning where it is damaged.
template <class T>
bool Checkpoints<T>::usable(const std::string& path, const std::function<void()>& work) {
  try {
    work();
    return true;
  } catch (const InputError& error) {
    log_.warn("checkpoint '{}' cannot be used: {}", path, error.what());
    return false;
  }
}

template <class T>
void Checkpoints<T>::check_continuable(const io::CheckpointLoader& loader,
                                       const std::string& path) {
  const std::string& deck = loader.info().deck;
  if (!deck.empty()) {
    require_continuable(path, deck_changes(deck, config_.resolved_deck), log_);
  }
  loader.require_tensors(TensorGroup::kParameters, *whole_layout_);
  loader.require_optimizer_state();
  loader.require_tensors(TensorGroup::kFirstMoment, *whole_layout_);
  loader.require_tensors(TensorGroup::kSecondMoment, *whole_layout_);
}

template <class T>
Resumed Checkpoints<T>::read(io::CheckpointLoader& loader, const std::string& path,
                             Engine<T>& engine) {
  std::vector<HostShards<T>> shards;
  for (const TensorGroup group : kGroups) {
    shards.emplace_back(group, engine, false);
    for (const ShardPiece& piece : engine.store().shard_pieces()) {
      loader.add<T>(group, *piece.parameter, piece.in_box, shards.back().piece(piece),
                    piece.parameter->counted);
    }
  }
  loader.read();
  for (const HostShards<T>& group : shards) group.copy_to_device();
  engine.store().gather_weights();
  return {path, loader.info()};
}

template <class T>
std::optional<Resumed> Checkpoints<T>::resume(Engine<T>& engine) {
  const std::string& path = config_.checkpoint.resume;
  if (path == "none") return std::nullopt;
  if (path == "auto") return newest(engine);
  io::CheckpointLoader loader(path, grid_.files(), config_.checkpoint.hints);
  check_continuable(loader, path);
  return read(loader, path, engine);
}

template <class T>
std::optional<Resumed> Checkpoints<T>::newest(Engine<T>& engine) {
  const std::vector<std::string> paths = candidates();
  for (const std::string& path : paths) {
    std::unique_ptr<io::CheckpointLoader> loader;
    const bool opened = usable(path, [&] {
      loader = std::make_unique<io::CheckpointLoader>(path, grid_.files(),
                                                      config_.checkpoint.hints);
    });
    if (!opened) continue;
    check_continuable(*loader, path);
    Resumed resumed;
    if (usable(path, [&] { resumed = read(*loader, path, engine); })) return resumed;
  }
  PLEAT_REQUIRE(paths.empty(), InputError, "PL0312",
                "no checkpoint in '{}' can be used\nHINT: checkpoint.resume = \"none\" sets them "
                "aside and starts the run anew.",
                folder_);
  return std::nullopt;
}

template <class T>
void Checkpoints<T>::start(const io::CheckpointInfo& info, Engine<T>& engine) {
  wait();
  stalled_before_ = stalled_;
  const Stopwatch watch(stalled_);
  const io::Retention retention{.newest = config_.checkpoint.keep,
                                .every = config_.checkpoint.keep_every};
  writing_ = std::make_unique<Writing>(folder_, info, engine);
  if (asynchronous_) {
    writing_->launch(*whole_layout_, config_.checkpoint.hints, retention, comm_->get());
  } else {
    writing_->write(*whole_layout_, config_.checkpoint.hints, retention, comm_->get());
  }
}

template <class T>
void Checkpoints<T>::before_update() {
  if (!writing_) return;
  const Stopwatch watch(stalled_);
  writing_->detach();
}

template <class T>
void Checkpoints<T>::poll() {
  if (writing_ && writing_->done()) wait();
}

template <class T>
void Checkpoints<T>::wait() {
  if (!writing_) return;
  {
    const Stopwatch watch(stalled_);
    writing_->join();
  }
  const std::unique_ptr<Writing> written = std::move(writing_);
  longest_seconds_ = std::max(longest_seconds_, written->seconds());
  if (written->failure()) {
    log_.warn("checkpoint '{}' is not written: {}\nthe run goes on; earlier checkpoints are as "
              "they were",
              written->path(), describe_failure(written->failure()).message);
  } else {
    log_.info("checkpoint {} ({:.2f} s, of which steps waited {:.2f} s)", written->path(),
              written->seconds(), stalled_ - stalled_before_);
  }
}

template <class T>
void Checkpoints<T>::finish() {
  if (!writing_) return;
  {
    const Stopwatch watch(stalled_);
    writing_->join();
  }
  if (writing_->failure()) std::rethrow_exception(writing_->failure());
  wait();
}

template class Checkpoints<float>;
template class Checkpoints<double>;

}  // namespace pleat::train
