// SPDX-License-Identifier: Apache-2.0
#include "dispatch/dispatch_case.hpp"

#include <random>

#include <fmt/format.h>

#include "support/world.hpp"

namespace pleat::test {
namespace {

int ranks_of_world() {
  int ranks = 0;
  MPI_Comm_size(world(), &ranks);
  return ranks;
}

Integers choices_of_token(Index token, const DispatchShape& shape, Routing routing,
                          std::mt19937_64& random) {
  Integers all(static_cast<std::size_t>(shape.experts));
  for (Index e = 0; e < shape.experts; ++e) all[static_cast<std::size_t>(e)] = e;
  if (routing == Routing::kBalanced) {
    std::rotate(all.begin(), all.begin() + token * shape.choices % shape.experts,
                all.end());
  } else {
    std::shuffle(all.begin(), all.end(), random);
  }
  all.resize(static_cast<std::size_t>(shape.choices));
  return all;
}

bool goes_nowhere(Index token, Index choice, Index expert, const DispatchShape& shape,
                  Routing routing) {
  switch (routing) {
    case Routing::kHoles:
      return token % 5 == 0 || (token + choice) % 7 == 0;
    case Routing::kEmptyExpert:
      return expert == 1;
    case Routing::kOneExpert:
      return expert != shape.experts - 1;
    case Routing::kNothing:
      return true;
    default:
      return false;
  }
}

RankTokens make_tokens(Index world_rank, bool empty, const DispatchShape& shape,
                       Routing routing) {
  const auto seed = static_cast<std::uint64_t>(world_rank);
  std::mt19937_64 random(seed);
  RankTokens tokens;
  tokens.x = random_values(shape.tokens * shape.hidden, 10 + seed);
  tokens.weight = random_values(shape.tokens * shape.choices, 1000 + seed);
  for (Index t = 0; t < shape.tokens; ++t) {
    const Integers choices = choices_of_token(t, shape, routing, random);
    for (Index k = 0; k < shape.choices; ++k) {
      const Index expert = choices[static_cast<std::size_t>(k)];
      const bool nowhere = empty || goes_nowhere(t, k, expert, shape, routing);
      tokens.index.push_back(nowhere ? -1 : expert);
    }
  }
  return tokens;
}

Values slice(const Values& values, Index first, Index last, Index columns) {
  return Values(values.begin() + first * columns, values.begin() + last * columns);
}

}  // namespace

std::vector<ExpertDegrees> all_degrees() {
  const Index ranks = ranks_of_world();
  std::vector<ExpertDegrees> degrees;
  for (Index ep = 1; ep <= ranks; ++ep) {
    for (Index etp = 1; ep * etp <= ranks; ++etp) {
      if (ranks % (ep * etp) == 0) degrees.push_back({ep, etp});
    }
  }
  return degrees;
}

std::vector<Routing> routings() {
  if (ranks_of_world() > 4) return {Routing::kHoles, Routing::kEmptyGroup};
  return {Routing::kFull,        Routing::kHoles,      Routing::kEmptyRank,
          Routing::kEmptyExpert, Routing::kEmptyGroup, Routing::kOneExpert,
          Routing::kNothing};
}

std::unique_ptr<comm::Grid> make_grid(const ExpertDegrees& degrees) {
  const comm::GridShape shape(
      {.expert = degrees.expert, .expert_tensor = degrees.expert_tensor},
      ranks_of_world());
  return std::make_unique<comm::Grid>(world(), shape);
}

DispatchCase::DispatchCase(const comm::Grid& grid, const DispatchShape& shape,
                           Routing routing)
    : shape_(shape), local_(model::make_local_dispatcher<double>(shape.experts)) {
  const auto members =
      grid.shape().group(grid.rank(), {comm::Axis::kExpert, comm::Axis::kExpertTensor});
  ranks_ = static_cast<Index>(members.size());
  shards_ = grid.degree(comm::Axis::kExpertTensor);
  self_ = grid.coordinate(comm::Axis::kExpert) * shards_ +
          grid.coordinate(comm::Axis::kExpertTensor);
  const Index local = shape.experts / grid.degree(comm::Axis::kExpert);
  first_ = grid.coordinate(comm::Axis::kExpert) * local;
  last_ = first_ + local;
  const bool first_group = grid.coordinate(comm::Axis::kExpertData) == 0;
  Integers index;
  for (const Index member : members) {
    const bool empty = (routing == Routing::kEmptyRank && member == members.front()) ||
                       (routing == Routing::kEmptyGroup && first_group);
    sources_.push_back(make_tokens(member, empty, shape, routing));
    index.insert(index.end(), sources_.back().index.begin(), sources_.back().index.end());
  }
  local_->plan(ExecSpace(),
               to_device<std::int32_t>(index, ranks_ * shape.tokens, shape.choices),
               arena_, scratch_, record_);
}

Integers DispatchCase::offsets() const {
  Integers offsets(record_.host_offsets.begin() + first_,
                   record_.host_offsets.begin() + last_ + 1);
  const Index base = offsets.front();
  for (Index& offset : offsets) offset -= base;
  return offsets;
}

Values DispatchCase::at_own_experts(const Values& values_N, Index columns) const {
  return slice(values_N, record_.host_offsets[static_cast<std::size_t>(first_)],
               record_.host_offsets[static_cast<std::size_t>(last_)], columns);
}

Values DispatchCase::of_own_tokens(const Values& values_G, Index columns) const {
  return slice(values_G, self_ * shape_.tokens, (self_ + 1) * shape_.tokens, columns);
}

Values DispatchCase::dispatched() const {
  Values x;
  for (const auto& source : sources_) x.insert(x.end(), source.x.begin(), source.x.end());
  const DeviceView<double, 2> x_ND("x_ND", rows(), shape_.hidden);
  Arena scratch("dispatched");
  local_->dispatch(ExecSpace(), record_,
                   to_device<double>(x, ranks_ * shape_.tokens, shape_.hidden), scratch,
                   x_ND);
  return to_host(x_ND);
}

Values DispatchCase::dispatched_weights() const {
  Values weight;
  for (const auto& source : sources_) {
    weight.insert(weight.end(), source.weight.begin(), source.weight.end());
  }
  const DeviceView<double, 1> weight_N("weight_N", rows());
  Arena scratch("weights");
  local_->dispatch_weights(
      ExecSpace(), record_,
      to_device<double>(weight, ranks_ * shape_.tokens, shape_.choices), scratch,
      weight_N);
  return to_host(weight_N);
}

Values DispatchCase::combined(const Values& y_ND) const {
  const DeviceView<double, 2> y_GD("y_GD", ranks_ * shape_.tokens, shape_.hidden);
  Arena scratch("combined");
  local_->combine(ExecSpace(), record_, to_device<double>(y_ND, rows(), shape_.hidden),
                  scratch, y_GD);
  return to_host(y_GD);
}

Values DispatchCase::returned(const Values& dweight_N) const {
  const DeviceView<double, 2> dweight_GK("dweight_GK", ranks_ * shape_.tokens,
                                         shape_.choices);
  Arena scratch("returned");
  local_->return_weights(ExecSpace(), record_, to_device<double>(dweight_N, rows()),
                         scratch, dweight_GK);
  return to_host(dweight_GK);
}

Index DispatchCase::rows(Index source, Index expert) const {
  const auto& index = sources_[static_cast<std::size_t>(source)].index;
  return std::count(index.begin(), index.end(), expert);
}

Values DispatchCase::shard_values(Index shard, Index columns) const {
  return random_values(rows() * columns, 77 + static_cast<std::uint64_t>(shard));
}

Values DispatchCase::summed_values(Index columns) const {
  Values sum(static_cast<std::size_t>(rows() * columns));
  for (Index shard = 0; shard < shards_; ++shard) {
    const Values values = shard_values(shard, columns);
    for (std::size_t i = 0; i < sum.size(); ++i) sum[i] += values[i];
  }
  return sum;
}

std::string describe(const comm::Grid& grid, Routing routing, plan::DispatcherKind kind) {
  return fmt::format(
      "{}, expert {}, expert_tensor {}, routing {}",
      kind == plan::DispatcherKind::kAllToAll ? "all-to-all" : "all-gather",
      grid.degree(comm::Axis::kExpert), grid.degree(comm::Axis::kExpertTensor),
      static_cast<int>(routing));
}

}  // namespace pleat::test
