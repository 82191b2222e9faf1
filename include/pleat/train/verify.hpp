// SPDX-License-Identifier: Apache-2.0
#pragma once

/// \file
/// \brief The proof that a mapping does not change the mathematics: a few steps folded over all
/// ranks against the same steps on one rank, in fp64.

#include <cstdint>
#include <string>
#include <vector>

#include <mpi.h>

#include "pleat/comm/communicator.hpp"
#include "pleat/io/token_data.hpp"
#include "pleat/tensor/flat_tensors.hpp"
#include "pleat/train/engine.hpp"

namespace pleat::train {

/// \brief The largest difference of a kind, relative to the largest element of its tensor (at
/// least to 1e-5 of the largest of all tensors: one that cancels to zero is rounding), and
/// where it is.
struct Difference {
  double relative = 0.0;
  std::string place;
};

/// \brief What a mapping did differently; alike on all ranks.
struct VerifyReport {
  bool same_start = false;    ///< weights before the first step, bit for bit
  std::uint64_t start_hash = 0;  ///< of their bits by tensor and place
  bool same_samples = false;  ///< tokens, labels and masks of every step
  std::uint64_t samples_hash = 0;  ///< in the order of the steps
  Difference loss;            ///< total, cross-entropy, balancing and z-loss of every step
  Difference gradient_norm;
  Difference gradients;       ///< every parameter, every step, before clipping
  Difference weights;         ///< after the last step
  std::uint64_t fingerprint = 0;  ///< of losses and weights' bits: the same run, the same number

  double largest() const;
  bool passes(double tolerance) const {
    return same_start && same_samples && largest() <= tolerance;
  }
};

/// \brief Whether the deck's mathematics are the same on every mapping; else why not.
/// \throws InputError PL0721 (capacity of sub-sequences; global_batch with several micro-batches
/// on a data rank)
void require_mapping_independence(const RunConfig& config, const comm::GridShape& shape);

/// \brief The steps on one rank, computed by the first rank and known to all.
class Reference {
 public:
  /// \param config  its [parallel] is not looked at; precision is fp64
  /// Collective over `world`. \param data  samples of the deck, open on every rank
  Reference(const RunConfig& config, std::int64_t steps, const io::TokenData& data,
            MPI_Comm world);

  /// \brief The same steps on the grid of config.parallel over all ranks. Collective.
  VerifyReport compare(const RunConfig& config, const io::TokenData& data) const;

 private:
  using Tensors = tensor::FlatTensors<double>;
  void run(const RunConfig& config, const io::TokenData& data);
  void share();
  Difference difference(const Tensors& local, const Tensors& whole, const std::string& what) const;
  Difference worst_of_ranks(const Difference& mine) const;
  std::uint64_t content_hash(const Tensors& local) const;

  MPI_Comm world_;
  std::unique_ptr<comm::Communicator> ranks_;
  std::int64_t steps_;
  std::shared_ptr<const tensor::ParameterLayout> layout_;  ///< of the whole model
  Tensors start_;
  std::uint64_t start_hash_ = 0;
  Tensors end_;
  std::vector<Tensors> gradients_;       ///< by step
  DeviceView<double, 2> losses_S5_;      ///< total, cross-entropy, auxiliary, z, gradient norm
  DeviceView<std::int64_t, 1> samples_S_;  ///< checksum of the step's samples
};

}  // namespace pleat::train
