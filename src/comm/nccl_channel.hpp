// SPDX-License-Identifier: Apache-2.0
#pragma once

/// \file
/// \brief A communicator of NCCL with a stream of its own, and how its exchanges are
/// ordered with the work of ExecSpace.

#include <memory>
#include <string>
#include <vector>

#include "nccl_api.hpp"
#include "pleat/comm/pending.hpp"

namespace pleat::comm::detail {

using gpu::Event;
using gpu::Stream;

/// \brief Calls of NCCL that are launched together: `NcclBatch batch; ...;
/// batch.launch()`. Left early, it is closed.
class NcclBatch {
 public:
  NcclBatch();
  ~NcclBatch();
  NcclBatch(const NcclBatch&) = delete;
  NcclBatch& operator=(const NcclBatch&) = delete;
  [[nodiscard]] ncclResult_t launch();

 private:
  bool open_ = true;
};

/// \brief One communicator, one stream: its exchanges run one after the other, in the
/// order of the calls, beside the work of ExecSpace and the exchanges of other channels.
/// Lives in a shared_ptr, as exchanges under way hold it.
///
/// After an error, or when an exception leaves an exchange behind, the communicator is
/// given up: further calls throw PL0811, and it is aborted instead of closed in the end,
/// so that no rank waits there for one that is gone.
class NcclChannel : public std::enable_shared_from_this<NcclChannel> {
 public:
  /// \param name  for messages: "group data, member 1 of 4"
  explicit NcclChannel(std::string name) : name_(std::move(name)) {}
  ~NcclChannel();
  NcclChannel(const NcclChannel&) = delete;
  NcclChannel& operator=(const NcclChannel&) = delete;

  /// \brief Collective over the members. Within an NcclBatch, done at its launch.
  void connect(const ncclUniqueId& id, int rank, int size);
  ncclComm_t comm() const { return comm_; }
  GpuStream stream() const { return stream_.get(); }

  /// \brief `queue()` puts an exchange on the stream, behind what ExecSpace has queued.
  template <class Queue>
  Pending start(const Queue& queue) {
    begin();
    queue();
    return end();
  }
  /// \brief The same with calls that are launched together.
  template <class Queue>
  void batch(const Queue& queue) {
    NcclBatch calls;
    queue();
    check(calls.launch(), "ncclGroupEnd");
  }
  /// \throws InternalError PL0811 with the call, NCCL's text, the member and the group
  void check(ncclResult_t result, const char* call);

 private:
  /// What an exchange under way needs. Used again by later ones: to make events takes time.
  struct Exchange {
    Event done;
    std::shared_ptr<NcclChannel> channel;  ///< which lives as long as it is under way
  };
  void begin();
  Pending end();
  void finish(Exchange& exchange);
  void check_background();

  std::string name_;
  Stream stream_;
  Event queued_;
  ncclComm_t comm_ = nullptr;
  bool given_up_ = false;
  std::vector<std::unique_ptr<Exchange>> exchanges_;
  std::vector<Exchange*> spare_;  ///< of them, those that are not under way
};

}  // namespace pleat::comm::detail
