// SPDX-License-Identifier: Apache-2.0
#pragma once

/// \file
/// \brief A dispatcher at work on the tokens of a DispatchCase.

#include "dispatch/dispatch_case.hpp"

namespace pleat::test {

using plan::DispatcherKind;

inline constexpr DispatcherKind kKinds[] = {DispatcherKind::kAllToAll,
                                            DispatcherKind::kAllGather};

/// \brief One dispatcher with a plan for this rank's tokens.
template <class T>
struct Planned {
  Planned(const comm::Grid& grid, const DispatchCase& reference, DispatcherKind kind,
          Index padded_rows = 0)
      : shape(reference.shape()),
        own(reference.own()),
        dispatcher(model::make_dispatcher<T>(kind, shape.experts, grid, padded_rows)) {
    plan();
  }

  void plan() {
    dispatcher->plan(exec,
                     to_device<std::int32_t>(own.index, shape.tokens, shape.choices),
                     saved, scratch, record);
  }
  Values dispatch(const Values& x, const model::Meanwhile& meanwhile = {}) {
    const auto x_RD =
        to_device<T>(Values(record.rows * shape.hidden, -7.0), record.rows, shape.hidden);
    dispatcher->dispatch(exec, record, to_device<T>(x, shape.tokens, shape.hidden),
                         scratch, x_RD, meanwhile);
    return to_host(x_RD);
  }
  Values combine(const Values& y, const model::Meanwhile& meanwhile = {}) {
    const auto y_TD = to_device<T>(Values(shape.tokens * shape.hidden, -7.0),
                                   shape.tokens, shape.hidden);
    dispatcher->combine(exec, record, to_device<T>(y, record.rows, shape.hidden), scratch,
                        y_TD, meanwhile);
    return to_host(y_TD);
  }
  Values dispatch_weights(const Values& weight) {
    const auto weight_R = to_device<T>(Values(record.rows, -7.0), record.rows);
    dispatcher->dispatch_weights(exec, record,
                                 to_device<T>(weight, shape.tokens, shape.choices),
                                 scratch, weight_R);
    return to_host(weight_R);
  }
  Values return_weights(const Values& dweight) {
    const auto dweight_TK = to_device<T>(Values(shape.tokens * shape.choices, -7.0),
                                         shape.tokens, shape.choices);
    dispatcher->return_weights(exec, record, to_device<T>(dweight, record.rows), scratch,
                               dweight_TK);
    return to_host(dweight_TK);
  }

  DispatchShape shape;
  RankTokens own;
  ExecSpace exec;
  Arena saved{"saved"};
  Arena scratch{"scratch"};
  std::unique_ptr<const model::Dispatcher<T>> dispatcher;
  model::DispatchRecord record;
};

/// \brief One grid for each way to cut the ranks, made once for all tests of a suite.
class OverAllDegrees : public testing::Test {
 protected:
  static void SetUpTestSuite() {
    for (const auto& degrees : all_degrees()) grids_.push_back(make_grid(degrees));
  }
  static void TearDownTestSuite() { grids_.clear(); }

  static const std::vector<std::unique_ptr<comm::Grid>>& grids() { return grids_; }

  /// \brief Runs body(grid, reference, kind) for every mapping, routing and dispatcher.
  template <class Body>
  static void for_each_case(const Body& body, const std::vector<Routing>& routings,
                            const DispatchShape& shape = {}) {
    for (const auto& grid : grids_) {
      for (const Routing routing : routings) {
        const DispatchCase reference(*grid, shape, routing);
        for (const DispatcherKind kind : kKinds) {
          SCOPED_TRACE(describe(*grid, routing, kind));
          body(*grid, reference, kind);
        }
      }
    }
  }

 private:
  inline static std::vector<std::unique_ptr<comm::Grid>> grids_;
};

/// \brief The shards' values of this rank's experts.
inline Values own_values(const comm::Grid& grid, const DispatchCase& reference,
                         Index columns) {
  const Index shard = grid.coordinate(comm::Axis::kExpertTensor);
  return reference.at_own_experts(reference.shard_values(shard, columns), columns);
}

}  // namespace pleat::test
