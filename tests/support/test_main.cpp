// SPDX-License-Identifier: Apache-2.0
/// \file
/// \brief The main of every test: MPI and Kokkos, then GoogleTest on all ranks.

#include <cstdio>

#include <gtest/gtest.h>

#include "pleat/base/runtime.hpp"
#include "support/world.hpp"

namespace {

const pleat::Runtime* runtime_of_this_test = nullptr;

/// Of several ranks only the first one tells of success; every rank tells of failure.
class FailuresOnly : public testing::EmptyTestEventListener {
 public:
  explicit FailuresOnly(int rank) : rank_(rank) {}
  void OnTestPartResult(const testing::TestPartResult& result) override {
    if (!result.failed()) return;
    std::fprintf(stderr, "rank %d: %s:%d: %s\n", rank_,
                 result.file_name() != nullptr ? result.file_name() : "?",
                 result.line_number(), result.message());
  }

 private:
  int rank_;
};

/// A rank that leaves a test early would keep the others waiting in the next exchange.
class EndJobOnFatalFailure : public testing::EmptyTestEventListener {
 public:
  void OnTestPartResult(const testing::TestPartResult& result) override {
    if (result.fatally_failed()) throw testing::AssertionException(result);
  }
};

}  // namespace

MPI_Comm pleat::test::world() { return runtime_of_this_test->world(); }

int main(int argc, char** argv) {
  pleat::Runtime runtime(argc, argv);
  runtime.start_kokkos();
  runtime_of_this_test = &runtime;
  testing::InitGoogleTest(&argc, argv);
  auto& listeners = testing::UnitTest::GetInstance()->listeners();
  if (runtime.rank() != 0) {
    delete listeners.Release(listeners.default_result_printer());
    listeners.Append(new FailuresOnly(runtime.rank()));
  }
  if (runtime.ranks() > 1) {  // what nobody catches ends the job
    GTEST_FLAG_SET(catch_exceptions, false);
    listeners.Append(new EndJobOnFatalFailure);
  }
  const int mine = RUN_ALL_TESTS();
  int worst = mine;
  MPI_Allreduce(&mine, &worst, 1, MPI_INT, MPI_MAX, runtime.world());
  return worst;
}
