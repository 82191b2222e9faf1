// SPDX-License-Identifier: Apache-2.0
#ifdef PLEAT_HAVE_NCCL
#include "nccl_channel.hpp"

#include <exception>
#include <utility>

#include "pleat/base/error.hpp"

namespace pleat::comm::detail {
namespace {

/// What NCCL remembers of its last failure, where the version has it.
std::string last_words([[maybe_unused]] ncclComm_t comm) {
#if NCCL_VERSION_CODE >= 21300
  const char* const text = ncclGetLastError(comm);
  if (text != nullptr && *text != '\0') return std::string(": ") + text;
#endif
  return {};
}

}  // namespace

NcclBatch::NcclBatch() { (void)ncclGroupStart(); }
NcclBatch::~NcclBatch() {
  if (open_) (void)ncclGroupEnd();
}
ncclResult_t NcclBatch::launch() {
  open_ = false;
  return ncclGroupEnd();
}

NcclChannel::~NcclChannel() {
  if (comm_ == nullptr) return;
  if (given_up_ || std::uncaught_exceptions() > 0) {
    (void)ncclCommAbort(comm_);
  } else {
    (void)ncclCommDestroy(comm_);
  }
}

void NcclChannel::connect(const ncclUniqueId& id, int rank, int size) {
  check(ncclCommInitRank(&comm_, size, id, rank), "ncclCommInitRank");
}

void NcclChannel::check(ncclResult_t result, const char* call) {
  if (result == ncclSuccess) return;
  given_up_ = true;
  PLEAT_FAIL(InternalError, "PL0811",
             "{} failed in {}: {}{}\n"
             "HINT: NCCL_DEBUG=INFO makes the library say more; often a dead node or "
             "network, resubmit the job.",
             call, name_, ncclGetErrorString(result), last_words(comm_));
}

/// What went wrong since the last call, on the device or on the way.
void NcclChannel::check_background() {
  ncclResult_t state = ncclSuccess;
  check(ncclCommGetAsyncError(comm_, &state), "ncclCommGetAsyncError");
  check(state, "an exchange under way");
}

void NcclChannel::begin() {
  PLEAT_REQUIRE(!given_up_, InternalError, "PL0811", "{} was given up after an error",
                name_);
  check_background();
  queued_.record(exec_stream());
  queued_.hold_back(stream_.get());
}

Pending NcclChannel::end() {
  if (spare_.empty()) {
    exchanges_.push_back(std::make_unique<Exchange>());
    spare_.push_back(exchanges_.back().get());
  }
  Exchange* const exchange = spare_.back();
  exchange->done.record(stream_.get());
  spare_.pop_back();
  exchange->channel = shared_from_this();
  return Pending([exchange] { exchange->channel->finish(*exchange); },
                 [exchange] { return exchange->done.reached(); });
}

// The member that an exchange waits for may be gone when an exception unwinds the stack;
// ExecSpace must then not wait for it.
void NcclChannel::finish(Exchange& exchange) {
  const std::shared_ptr<NcclChannel> self = std::exchange(exchange.channel, nullptr);
  spare_.push_back(&exchange);
  if (std::uncaught_exceptions() > 0) {
    given_up_ = given_up_ || !exchange.done.reached();
    return;
  }
  exchange.done.hold_back(exec_stream());
  check_background();
}

}  // namespace pleat::comm::detail
#endif
