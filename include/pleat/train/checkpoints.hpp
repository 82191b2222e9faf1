// SPDX-License-Identifier: Apache-2.0
#pragma once

/// \file
/// \brief The state of a run on its way into checkpoints, beside the next steps, and out of them.

#include <cstdint>
#include <functional>
#include <future>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "pleat/base/log.hpp"
#include "pleat/comm/grid.hpp"
#include "pleat/io/checkpoint.hpp"
#include "pleat/train/engine.hpp"
#include "pleat/train/run_config.hpp"

namespace pleat::train {

/// \brief What has been read of the checkpoint that a run continues from.
struct Resumed {
  std::string path;
  io::CheckpointInfo info;
  bool named = false;  ///< by its path, in the deck
};

/// \brief Writes and reads the checkpoints of one run.
///
/// Weights and moments change only in the update at the end of a step. So a checkpoint is
/// written straight from them, on a thread of its own, while the next step computes its
/// gradients; only what is not yet written when that update is due is copied first
/// (docs/adr/0015). Each rank writes the elements of its own shards, whatever the mapping. All
/// functions but go_on_from(), before_update() and those that only tell are collective over the
/// grid.
template <class T>
class Checkpoints {
 public:
  /// \param folder  of the checkpoints
  /// \param config, grid, log  must outlive the object
  Checkpoints(const RunConfig& config, std::string folder, const comm::Grid& grid, Log& log);
  /// \brief Waits for this rank's part of what is being written, and drops it.
  ~Checkpoints();
  Checkpoints(const Checkpoints&) = delete;
  Checkpoints& operator=(const Checkpoints&) = delete;

  /// \brief Loads what checkpoint.resume asks for into the engine: nothing, a file, or the newest
  /// usable checkpoint of the folder, with a warning for each damaged one that is passed over.
  /// \throws InputError PL0309 another model; PL0312 all are damaged; PL0732 a deck that
  ///   cannot continue it
  std::optional<Resumed> resume(Engine<T>& engine);
  /// \brief Loads the newest usable checkpoint that a rollback in `step` can return to, if there
  /// is one: of an earlier step, which checkpoint.every (not 0) divides. Those of stops in
  /// between are passed over, and so are those that another job left at later steps.
  std::optional<Resumed> go_back(Engine<T>& engine, std::int64_t step);

  /// \brief Makes the folder that of a run which goes on from here, so that whatever ends this job
  /// the next one cannot take a checkpoint of what lies ahead now: LATEST names it, and where
  /// the deck does so too, newer ones are set aside. To be called before later rows of
  /// metrics.csv go. Nothing happens for a checkpoint of another folder. On the first rank.
  /// \throws IoError PL0310
  void go_on_from(const Resumed& resumed);

  /// \brief Begins to write, after the one before; all of it unless checkpoint.asynchronous.
  /// What fails is a warning of poll() or wait().
  void start(const io::CheckpointInfo& info, Engine<T>& engine);
  /// \brief To be called before weights or moments change.
  void before_update();
  /// \brief Moves on what is under way, without waiting; to be called after each step.
  void poll();
  /// \brief Waits for what is being written.
  void wait();
  /// \brief The same, for a checkpoint that must not fail. \throws IoError
  void finish();

  /// \brief Seconds for which steps have waited for checkpoints so far.
  double stalled_seconds() const { return stalled_; }
  /// \brief The longest time that writing one took, on the first rank; 0 before the first.
  double longest_seconds() const { return longest_seconds_; }

 private:
  class Writing;
  std::vector<std::string> candidates();
  bool usable(const std::string& path, const std::function<void()>& work);
  std::optional<Resumed> newest(Engine<T>& engine);
  std::optional<Resumed> first_usable(const std::vector<std::string>& paths, Engine<T>& engine,
                                      const std::function<bool(std::int64_t)>& wanted,
                                      bool tell_changes);
  void check_continuable(const io::CheckpointLoader& loader, const std::string& path,
                         bool tell_changes);
  Resumed read(io::CheckpointLoader& loader, const std::string& path, Engine<T>& engine);
  bool all_ranks(bool here);
  void settle();
  void report();
  void begin_pruning();
  void end_pruning();

  const RunConfig& config_;
  std::string folder_;
  const comm::Grid& grid_;
  Log& log_;
  std::shared_ptr<const tensor::ParameterLayout> whole_layout_;
  std::unique_ptr<Writing> writing_;
  double stalled_ = 0.0;
  double stalled_before_ = 0.0;  ///< when the one under way was begun
  double longest_seconds_ = 0.0;
  std::future<void> pruning_;  ///< of the folder, on the first rank
};

}  // namespace pleat::train
