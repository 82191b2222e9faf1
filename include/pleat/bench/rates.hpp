// SPDX-License-Identifier: Apache-2.0
#pragma once

/// \file
/// \brief How fast this machine multiplies, moves memory and exchanges, and how close the
/// kernels come to that.

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "pleat/base/types.hpp"
#include "pleat/comm/communicator.hpp"
#include "pleat/train/run_config.hpp"

namespace pleat::bench {

/// \brief The sizes at which kernels are timed.
struct Shape {
  std::string name;        ///< of the deck
  std::int64_t batch = 0;  ///< sequences of a micro-batch
  std::int64_t sequence = 0;
  std::int64_t hidden = 0;
  std::int64_t heads = 0;
  std::int64_t kv_heads = 0;
  std::int64_t head_dim = 0;
  std::int64_t vocabulary = 0;
  std::int64_t experts = 0;
  std::int64_t top_k = 0;
  std::int64_t ffn = 0;  ///< of one expert

  std::int64_t tokens() const { return batch * sequence; }
  std::int64_t qkv_row() const { return (heads + 2 * kv_heads) * head_dim; }
};

/// \brief That of inputs/bench-s.toml.
Shape default_shape();

/// \brief A layer of the deck's model on one rank, without any parallel axis.
Shape shape_of(const train::RunConfig& config);

/// \brief Work over time. On several ranks each rank does the work at the same time and
/// the slowest one counts.
struct Rate {
  std::string name;
  std::string precision;
  std::string shape;
  double seconds = 0.0;
  double work = 0.0;   ///< floating-point operations, or bytes
  std::string unit;    ///< "FLOP/s" or "B/s"
  std::string peak;    ///< name of the peak that it is measured against
  double share = 0.0;  ///< of that peak
  double rate() const { return work / seconds; }
};

/// \brief What a rank can do at best; measured, not read off a data sheet.
struct Peak {
  std::string name;  ///< "fp64", "fp32", "bf16"; "memory"; "exchange"
  double rate = 0.0;
  std::string unit;
};

/// \brief The rate of that name; 0 where it was not measured.
double peak_of(const std::vector<Peak>& peaks, const std::string& name);

/// \brief "fp64", "fp32", "bf16": the best of products of square matrices and, but for
/// bf16, of multiply-adds in registers. "memory": the best of a copy and triads over
/// arrays larger than caches. \param seconds  for all together Collective.
std::vector<Peak> measure_peaks(comm::Communicator& ranks, double seconds);

/// \brief Which of the kernels are timed.
enum class Kernels { kAll, kProducts };

/// \brief The kernels in every precision that they know. Collective.
std::vector<Rate> measure_kernels(const Shape& shape, Kernels which,
                                  const std::vector<Peak>& peaks,
                                  comm::Communicator& ranks, double seconds);

/// \brief Collectives over all ranks in fp32, by size. `work` is the bytes that each rank
/// has to send, whatever the algorithm. Adds the peak "exchange": the best rate of
/// messages to a neighbour and from the other, of any size. Nothing in a group of one.
/// Collective.
std::vector<Rate> measure_exchanges(comm::Communicator& ranks, double seconds,
                                    std::vector<Peak>& peaks);

}  // namespace pleat::bench
