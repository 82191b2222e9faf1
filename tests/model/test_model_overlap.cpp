// SPDX-License-Identifier: Apache-2.0
/// \file
/// \brief The shared expert works while rows travel, forwards and backwards: in the order in which
/// kernels are launched it comes between the dispatch and the experts.

#include <algorithm>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "model/model_cases.hpp"
#include "model/model_problem.hpp"

namespace pleat::test {
namespace {

std::vector<std::string>& launched() {
  static std::vector<std::string> names;
  return names;
}

void note_launch(const char* name, std::uint32_t, std::uint64_t*) {
  launched().emplace_back(name);
}

/// The kernels of one step, in the order of their launches.
std::vector<std::string> launches_of_a_step(const plan::ModelConfig& config) {
  ModelProblem<double> problem(config, 6);
  problem.set_weights(random_weights(config, 0.4, 7));
  const HostBatch batch = random_batch(1, 6, config.vocab, 71);
  launched().clear();
  Kokkos::Tools::Experimental::set_begin_parallel_for_callback(note_launch);
  problem.step(batch);
  Kokkos::Tools::Experimental::set_begin_parallel_for_callback(nullptr);
  return launched();
}

/// Places of the launches of a kernel.
std::vector<std::ptrdiff_t> places(const std::vector<std::string>& launches,
                                   const std::string& kernel) {
  std::vector<std::ptrdiff_t> found;
  for (auto launch = launches.begin(); launch != launches.end(); ++launch) {
    if (*launch == "pleat::kernels::" + kernel) found.push_back(launch - launches.begin());
  }
  return found;
}

TEST(Overlap, TheSharedExpertComesWhileRowsTravel) {
  plan::ModelConfig config = small_model();
  config.layers = 1;
  config.moe_layer = {true};
  config.moe.shared_ffn = 5;
  config.moe.shared_gate = true;
  // With padding one rank, too, has a dispatcher that exchanges.
  config.moe.drop.capacity_factor = static_cast<double>(config.moe.experts);
  config.moe.drop.pad = true;
  const auto launches = launches_of_a_step(config);
  // Tokens, the gradients of what came of them, and tokens again.
  const auto sent = places(launches, "permute_rows");
  const auto experts = places(launches, "unpermute_sum");
  const auto shared = places(launches, "add_sigmoid_gated");
  const auto shared_back = places(launches, "sigmoid_gated_backward");
  ASSERT_EQ(sent.size(), 3U);
  ASSERT_EQ(experts.size(), 2U);
  ASSERT_EQ(shared.size(), 1U);
  ASSERT_EQ(shared_back.size(), 1U);
  EXPECT_LT(sent[0], shared[0]);
  EXPECT_LT(shared[0], experts[0]);
  EXPECT_LT(sent[1], shared_back[0]);
  EXPECT_LT(shared_back[0], sent[2]);
}

}  // namespace
}  // namespace pleat::test
