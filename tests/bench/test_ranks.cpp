// SPDX-License-Identifier: Apache-2.0
#include <set>
#include <string>

#include <gtest/gtest.h>

#include "pleat/bench/rates.hpp"
#include "pleat/bench/report.hpp"
#include "support/world.hpp"

namespace pleat::bench {
namespace {

TEST(Ranks, EveryExchangeIsTimed) {
  const auto ranks = comm::make_mpi_communicator(test::world());
  std::vector<Peak> peaks;
  const std::vector<Rate> rates = measure_exchanges(*ranks, 0.1, peaks);
  if (ranks->size() == 1) {
    EXPECT_TRUE(rates.empty());
    EXPECT_TRUE(peaks.empty());
    return;
  }
  std::set<std::string> names;
  for (const Rate& rate : rates) {
    names.insert(rate.name);
    EXPECT_GT(rate.seconds, 0.0) << rate.name;
    EXPECT_GT(rate.work, 0.0) << rate.name;
    EXPECT_EQ(rate.seconds, ranks->all_reduce_value(rate.seconds, comm::Reduction::kMax))
        << "the same on all ranks";
  }
  EXPECT_EQ(names, (std::set<std::string>{"send/receive", "all-reduce", "all-gather",
                                          "reduce-scatter", "all-to-all-v"}));
  EXPECT_EQ(rates.size(), 25U);
  EXPECT_GT(peak_of(peaks, "exchange"), 0.0);
}

// One rank with another device is seen by all.
TEST(Ranks, FactsThatDifferAreCounted) {
  const auto ranks = comm::make_mpi_communicator(test::world());
  EXPECT_EQ(fact_of_ranks(*ranks, "abacus"), "abacus");
  const int last = ranks->size() - 1;
  if (last == 0) return;
  EXPECT_EQ(fact_of_ranks(*ranks, ranks->rank() == last ? "tally sticks" : "abacus"),
            std::to_string(last) + " of abacus, 1 of tally sticks");
}

// A rank whose kernels are wrong is seen by all.
TEST(Ranks, TheWorstRankCounts) {
  const auto ranks = comm::make_mpi_communicator(test::world());
  std::vector<Answer> answers{{.kernel = "gemm",
                               .output = "",
                               .precision = "",
                               .element = "",
                               .ulps = 1.0,
                               .limit = 16.0},
                              {.kernel = "rope",
                               .output = "",
                               .precision = "",
                               .element = "",
                               .ulps = 1.0,
                               .limit = 16.0}};
  const int last = ranks->size() - 1;
  if (ranks->rank() == last) answers[1].ulps = 40.0;
  take_worst_of_ranks(answers, *ranks);
  EXPECT_EQ(answers[0].ulps, 1.0);
  EXPECT_EQ(answers[1].ulps, 40.0);
  EXPECT_FALSE(all_pass(answers));
}

}  // namespace
}  // namespace pleat::bench
