// SPDX-License-Identifier: Apache-2.0
#include "pleat/train/checkpoints.hpp"

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <exception>
#include <span>
#include <system_error>
#include <thread>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "host_shards.hpp"
#include "pleat/base/error.hpp"
#include "pleat/base/failure.hpp"
#include "pleat/comm/text.hpp"
#include "pleat/io/durable_file.hpp"
#include "pleat/io/places.hpp"
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
  ~Stopwatch() { seconds_ += std::chrono::duration<double>(Clock::now() - start_).count(); }

 private:
  double& seconds_;
  Clock::time_point start_ = Clock::now();
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

/// Only here, not with the other keys: a job that waits for another one names what is yet to come.
void require_file(const std::string& path) {
  PLEAT_REQUIRE(io::is_plain_file(path), InputError, "PL0301",
                "checkpoint.resume: '{}' is neither a checkpoint nor the folder of a run with "
                "checkpoints\n"
                "HINT: the path is relative to the deck's folder or the working directory; "
                "\"auto\" goes on from run.output, \"none\" begins anew.",
                path);
}

}  // namespace

/// One checkpoint under way: every rank fills its part of the file, all agree that they have,
/// and the first rank seals it. Filling and sealing may each run on a thread.
template <class T>
class Checkpoints<T>::Writing {
 public:
  /// Collective; what fails shows in failure().
  Writing(std::string folder, const io::CheckpointInfo& info, Engine<T>& engine,
          const tensor::ParameterLayout& whole, const CheckpointSection& section,
          const comm::Grid& grid);
  ~Writing() { join(); }

  /// All of it before it returns.
  void write();
  void start_filling() { start(&Writing::fill); }
  void detach() {
    if (!agreed_ && !idle()) writer_->detach();
  }
  /// When all ranks are done with filling. Collective.
  void agree();
  void start_sealing() {
    if (is_first_ && !failure_) start(&Writing::seal);
  }

  bool agreed() const { return agreed_; }
  /// Nothing is being done for it on this rank.
  bool idle() const { return idle_; }
  void join() {
    if (thread_.joinable()) thread_.join();
  }
  std::string path() const { return folder_ + "/" + io::checkpoint_name(step_); }
  double seconds() const { return std::chrono::duration<double>(end_ - begin_).count(); }
  const std::exception_ptr& failure() const { return failure_; }

 private:
  void fill() { writer_->write_alone(); }
  void seal();
  void attempt(const std::function<void()>& work);
  void attempt_together(const std::function<void()>& work);
  void start(void (Writing::*work)());

  std::string folder_;
  std::int64_t step_;
  bool is_first_;
  std::vector<HostShards<T>> shards_;
  std::unique_ptr<io::CheckpointWriter> writer_;
  Clock::time_point begin_ = Clock::now();
  Clock::time_point end_ = begin_;
  std::exception_ptr failure_;
  bool agreed_ = false;
  std::atomic<bool> idle_ = true;
  std::thread thread_;
};

template <class T>
Checkpoints<T>::Writing::Writing(std::string folder, const io::CheckpointInfo& info,
                                 Engine<T>& engine, const tensor::ParameterLayout& whole,
                                 const CheckpointSection& section, const comm::Grid& grid)
    : folder_(std::move(folder)),
      step_(info.step),
      is_first_(grid.rank() == 0) {
  attempt_together([&] {
    writer_ = std::make_unique<io::CheckpointWriter>(
        path(), info, declarations(whole, io::kElementTypeOf<Master<T>>), grid.files(), section.hints);
  });
  agreed_ = failure_ != nullptr;
  if (failure_) return;
  const std::vector<ShardPiece> pieces = engine.store().shard_pieces();
  for (const TensorGroup group : kGroups) {
    const HostShards<T>& shards = shards_.emplace_back(group, engine, true);
    for (const ShardPiece& piece : pieces) {
      if (!piece.parameter->counted) continue;
      writer_->add(group, *piece.parameter, piece.in_box, std::as_bytes(shards.piece(piece)));
    }
  }
  if (section.asynchronous) writer_->begin_alone();
}

/// The first failure counts.
template <class T>
void Checkpoints<T>::Writing::attempt(const std::function<void()>& work) {
  try {
    work();
  } catch (...) {
    failure_ = std::current_exception();
  }
  end_ = Clock::now();
}

/// What fails of the files, all ranks have agreed on. Any other failure, such as a lack of
/// memory, may be this rank's alone: the others wait for it, so it ends the job.
template <class T>
void Checkpoints<T>::Writing::attempt_together(const std::function<void()>& work) {
  try {
    work();
  } catch (const Error& error) {
    if (error.exit_code() == ExitCode::kInternal) throw;
    failure_ = std::current_exception();
  }
  end_ = Clock::now();
}

template <class T>
void Checkpoints<T>::Writing::start(void (Writing::*work)()) {
  join();
  idle_ = false;
  const auto whole_work = [this, work] {
    attempt([this, work] { (this->*work)(); });
    idle_ = true;
  };
  try {
    thread_ = std::thread(whole_work);
  } catch (const std::system_error&) {
    whole_work();  // no thread is to be had: the steps wait
  }
}

template <class T>
void Checkpoints<T>::Writing::write() {
  attempt_together([this] {
    writer_->write();
    writer_->agree(nullptr);
  });
  agreed_ = true;
  if (is_first_ && !failure_) attempt([this] { seal(); });
}

template <class T>
void Checkpoints<T>::Writing::agree() {
  join();
  const std::exception_ptr here = std::exchange(failure_, nullptr);
  attempt([&] { writer_->agree(here); });
  agreed_ = true;
}

template <class T>
void Checkpoints<T>::Writing::seal() {
  writer_->seal();
  io::move_latest(folder_, io::checkpoint_name(step_));
}

template <class T>
Checkpoints<T>::Checkpoints(const RunConfig& config, std::string folder, const comm::Grid& grid,
                            Log& log)
    : config_(config),
      folder_(std::move(folder)),
      grid_(grid),
      log_(log),
      whole_layout_(model::parameter_layout(config.model)) {}

template <class T>
Checkpoints<T>::~Checkpoints() = default;

/// What the first rank finds in the folder.
template <class T>
std::vector<std::string> Checkpoints<T>::candidates() {
  end_pruning();
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
                                       const std::string& path, bool tell_changes) {
  const std::vector<DeckChange> changes =
      deck_changes(loader.info().deck, config_.resolved_deck);
  tell_changes ? require_continuable(path, changes, log_) : require_continuable(path, changes);
  loader.require_tensors(TensorGroup::kParameters, *whole_layout_);
  loader.require_optimizer_state();
  loader.require_tensors(TensorGroup::kFirstMoment, *whole_layout_);
  loader.require_tensors(TensorGroup::kSecondMoment, *whole_layout_);
}

template <class T>
Resumed Checkpoints<T>::read(io::CheckpointLoader& loader, const std::string& path,
                             Engine<T>& engine) {
  read_shards<T>(loader, kGroups, engine);
  return {.path = path, .info = loader.info()};
}

/// A file of another folder is where a run begins. Once the run has checkpoints of its own it
/// goes on from those: a batch system gives the same command again.
template <class T>
std::optional<Resumed> Checkpoints<T>::resume(Engine<T>& engine) {
  const std::string& path = config_.checkpoint.resume;
  if (path == "none") return std::nullopt;
  if (path == "auto") return newest(engine);
  if (!io::is_in_folder(path, folder_)) {
    if (std::optional<Resumed> own = newest(engine)) {
      log_.info("this run has checkpoints of its own, later than checkpoint.resume = '{}'", path);
      return own;
    }
  }
  require_file(path);
  io::CheckpointLoader loader(path, grid_.files(), config_.checkpoint.hints);
  io::require_step_of_name(path, loader.info().step);
  check_continuable(loader, path, true);
  Resumed resumed = read(loader, path, engine);
  resumed.named = true;
  return resumed;
}

/// The first of the candidates that is wanted and undamaged.
/// \param wanted  asked about the step
template <class T>
std::optional<Resumed> Checkpoints<T>::first_usable(
    const std::vector<std::string>& paths, Engine<T>& engine,
    const std::function<bool(std::int64_t)>& wanted, bool tell_changes) {
  for (const std::string& path : paths) {
    std::unique_ptr<io::CheckpointLoader> loader;
    const bool opened = usable(path, [&] {
      loader = std::make_unique<io::CheckpointLoader>(path, grid_.files(),
                                                      config_.checkpoint.hints);
      io::require_step_of_name(path, loader->info().step);
    });
    if (!opened || !wanted(loader->info().step)) continue;
    check_continuable(*loader, path, tell_changes);
    Resumed resumed;
    if (usable(path, [&] { resumed = read(*loader, path, engine); })) return resumed;
  }
  return std::nullopt;
}

template <class T>
std::optional<Resumed> Checkpoints<T>::newest(Engine<T>& engine) {
  if (grid_.rank() == 0) io::warn_of_newer_checkpoints(folder_, log_);
  const std::vector<std::string> paths = candidates();
  std::optional<Resumed> found =
      first_usable(paths, engine, [](std::int64_t) { return true; }, true);
  PLEAT_REQUIRE(found || paths.empty(), InputError, "PL0312",
                "no checkpoint in '{}' can be used\nHINT: checkpoint.resume = \"none\" sets them "
                "aside and starts the run anew.",
                folder_);
  return found;
}

/// What changed in the deck was said when the run was resumed.
template <class T>
std::optional<Resumed> Checkpoints<T>::go_back(Engine<T>& engine, std::int64_t step) {
  const std::int64_t every = config_.checkpoint.every;
  const auto earlier_and_regular = [&](std::int64_t candidate) {
    return candidate < step && candidate % every == 0;
  };
  return first_usable(candidates(), engine, earlier_and_regular, false);
}

/// LATEST first: from then on no kill leads to the others.
template <class T>
void Checkpoints<T>::go_on_from(const Resumed& resumed) {
  if (!io::is_in_folder(resumed.path, folder_)) return;
  io::let_latest_name(resumed.path);
  if (resumed.named) io::set_newer_checkpoints_aside(folder_, resumed.info.step, log_);
}

template <class T>
void Checkpoints<T>::start(const io::CheckpointInfo& info, Engine<T>& engine) {
  wait();
  stalled_before_ = stalled_;
  const Stopwatch watch(stalled_);
  end_pruning();
  writing_ = std::make_unique<Writing>(folder_, info, engine, *whole_layout_,
                                       config_.checkpoint, grid_);
  if (writing_->failure()) return;
  config_.checkpoint.asynchronous ? writing_->start_filling() : writing_->write();
}

template <class T>
void Checkpoints<T>::before_update() {
  if (!writing_) return;
  const Stopwatch watch(stalled_);
  writing_->detach();
}

template <class T>
bool Checkpoints<T>::all_ranks(bool here) {
  const std::int64_t missing = here ? 0 : 1;
  return grid_.group(comm::GroupName::kWorld)
             .all_reduce_value(missing, comm::Reduction::kMax) == 0;
}

template <class T>
void Checkpoints<T>::poll() {
  if (!writing_) return;
  const Stopwatch watch(stalled_);
  if (!writing_->agreed()) {
    if (!all_ranks(writing_->idle())) return;
    writing_->agree();
    writing_->start_sealing();
  }
  if (writing_->idle()) report();
}

/// Until the file is sealed, or has failed.
template <class T>
void Checkpoints<T>::settle() {
  const Stopwatch watch(stalled_);
  if (!writing_->agreed()) {
    writing_->agree();
    writing_->start_sealing();
  }
  writing_->join();
}

template <class T>
void Checkpoints<T>::report() {
  const std::unique_ptr<Writing> written = std::move(writing_);
  longest_seconds_ = std::max(longest_seconds_, written->seconds());
  if (written->failure()) {
    log_.warn("checkpoint '{}' is not written: {}\nthe run goes on; earlier checkpoints are as "
              "they were",
              written->path(), describe_failure(written->failure()).message);
  } else {
    log_.info("checkpoint {} ({:.2f} s, of which steps waited {:.2f} s)", written->path(),
              written->seconds(), stalled_ - stalled_before_);
    begin_pruning();
  }
}

/// On a thread, or in end_pruning() where there is none: to give back the space of a large file
/// takes a disk long.
template <class T>
void Checkpoints<T>::begin_pruning() {
  if (grid_.rank() != 0) return;
  const CheckpointSection& section = config_.checkpoint;
  const io::Retention retention{
      .newest = section.keep, .regular = section.every, .every = section.keep_every};
  pruning_ = std::async(std::launch::async | std::launch::deferred,
                        [this, retention] { io::prune_checkpoints(folder_, retention); });
}

template <class T>
void Checkpoints<T>::end_pruning() {
  if (!pruning_.valid()) return;
  try {
    pruning_.get();
  } catch (const std::exception& error) {
    log_.warn("old checkpoints in '{}' could not be removed: {}", folder_, error.what());
  }
}

template <class T>
void Checkpoints<T>::wait() {
  if (!writing_) return;
  settle();
  report();
}

template <class T>
void Checkpoints<T>::finish() {
  std::exception_ptr failure;
  if (writing_) {
    settle();
    failure = writing_->failure();
    if (!failure) report();
  }
  end_pruning();
  // The last step of it is the first rank's alone.
  if (all_ranks(!failure)) return;
  if (failure) std::rethrow_exception(failure);
  PLEAT_FAIL(IoError, "PL0303", "the first rank could not finish the last checkpoint");
}

template class Checkpoints<float>;
template class Checkpoints<double>;
template class Checkpoints<Bf16>;

}  // namespace pleat::train
