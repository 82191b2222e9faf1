// SPDX-License-Identifier: Apache-2.0
#include "pleat/comm/grid.hpp"

#include <algorithm>
#include <span>

#include "backend.hpp"
#include "pleat/base/error.hpp"
#include "pleat/comm/check_mpi.hpp"

namespace pleat::comm {
namespace {

struct GroupAxes {
  const char* name;
  std::vector<Axis> axes;
  bool messages = false;  ///< members send to their neighbours
};

const GroupAxes& axes_of(GroupName group) {
  static const std::array<GroupAxes, kGroups> kTable{{
      {"world", {Axis::kPipeline, Axis::kData, Axis::kContext, Axis::kTensor}},
      {"pipeline", {Axis::kPipeline}, true},
      {"data", {Axis::kData}},
      {"context", {Axis::kContext}, true},
      {"tensor", {Axis::kTensor}},
      {"data*context", {Axis::kData, Axis::kContext}},
      {"context*tensor", {Axis::kContext, Axis::kTensor}},
      {"data*context*tensor", {Axis::kData, Axis::kContext, Axis::kTensor}},
      {"expert_data", {Axis::kExpertData}},
      {"expert", {Axis::kExpert}},
      {"expert_tensor", {Axis::kExpertTensor}},
      {"expert*expert_tensor", {Axis::kExpert, Axis::kExpertTensor}},
  }};
  return kTable[static_cast<std::size_t>(group)];
}

bool contains(std::span<const Axis> axes, Axis axis) {
  return std::find(axes.begin(), axes.end(), axis) != axes.end();
}

/// One Cartesian communicator over the ranks of `world`, freed with the object.
class Cartesian {
 public:
  Cartesian(MPI_Comm world, const GridShape& shape, const std::array<Axis, 4>& axes)
      : shape_(shape), axes_(axes) {
    std::array<int, 4> degrees{};
    const std::array<int, 4> not_periodic{};
    std::transform(axes.begin(), axes.end(), degrees.begin(),
                   [&](Axis axis) { return static_cast<int>(shape.degree(axis)); });
    PLEAT_CHECK_MPI(MPI_Cart_create(world, 4, degrees.data(), not_periodic.data(),
                                    /*reorder=*/0, &handle_));
  }
  ~Cartesian() { MPI_Comm_free(&handle_); }
  Cartesian(const Cartesian&) = delete;
  Cartesian& operator=(const Cartesian&) = delete;

  /// The members that differ from this rank at most along the axes of the group.
  std::unique_ptr<Communicator> cut(const GroupAxes& group, BackendKind backend) const {
    std::int64_t members = 1;
    std::array<int, 4> remains{};
    for (std::size_t i = 0; i < axes_.size(); ++i) {
      if (!contains(group.axes, axes_[i])) continue;
      remains[i] = 1;
      members *= shape_.degree(axes_[i]);
    }
    if (members == 1) return make_self_communicator(group.name);
    MPI_Comm part = MPI_COMM_NULL;
    PLEAT_CHECK_MPI(MPI_Cart_sub(handle_, remains.data(), &part));
    return adopt_mpi_communicator(part, group.name, {backend, group.messages});
  }

 private:
  const GridShape& shape_;
  std::array<Axis, 4> axes_;
  MPI_Comm handle_ = MPI_COMM_NULL;
};

/// What was measured of a group that split() made, after those of the grid; one line for
/// all of a label.
template <class Value>
void add_part(const std::string& label, const Value& value,
              std::vector<std::pair<std::string, Value>>& values) {
  const auto same = std::find_if(values.begin() + kGroups, values.end(),
                                 [&](const auto& other) { return other.first == label; });
  if (same == values.end()) {
    values.emplace_back(label, value);
  } else {
    same->second += value;
  }
}

}  // namespace

const char* group_name(GroupName group) { return axes_of(group).name; }

Grid::Grid(MPI_Comm world, const GridShape& shape, BackendKind backend, Overlap overlap)
    : shape_(shape), files_(world) {
  int rank = 0;
  int ranks = 0;
  PLEAT_CHECK_MPI(MPI_Comm_rank(world, &rank));
  PLEAT_CHECK_MPI(MPI_Comm_size(world, &ranks));
  PLEAT_REQUIRE(ranks == shape.ranks(), InputError, "PL0802",
                "the grids are laid out for {} ranks, but {} are running", shape.ranks(),
                ranks);
  rank_ = rank;
  backend_ = choose_backend(backend, world);
  const Cartesian attention(world, shape_, kAttentionAxes);
  const Cartesian moe(world, shape_, kMoeAxes);
  for (std::size_t i = 0; i < kGroups; ++i) {
    const GroupAxes& group = axes_of(static_cast<GroupName>(i));
    const bool of_attention = contains(kAttentionAxes, group.axes.front());
    groups_[i] = (of_attention ? attention : moe).cut(group, backend_);
    if (overlap == Overlap::kNo) groups_[i]->forgo_overlap();
  }
}

Grid::Grid() : shape_(Degrees{}, 1) {
  for (std::size_t i = 0; i < kGroups; ++i) {
    groups_[i] = make_self_communicator(group_name(static_cast<GroupName>(i)));
  }
}

std::string Grid::describe_rank() const {
  const auto place = [&](Axis axis) {
    return fmt::format("{} {}", axis_name(axis), coordinate(axis));
  };
  return fmt::format("rank {} ({}, {}, {}, {}; {}, {}, {})", rank_,
                     place(Axis::kPipeline), place(Axis::kData), place(Axis::kContext),
                     place(Axis::kTensor), place(Axis::kExpertData), place(Axis::kExpert),
                     place(Axis::kExpertTensor));
}

std::vector<std::pair<std::string, Traffic>> Grid::traffic() const {
  std::vector<std::pair<std::string, Traffic>> traffic;
  for (const auto& group : groups_)
    traffic.emplace_back(group->label(), group->traffic());
  for (const auto& group : groups_) {
    for (const Communicator::Part& part : group->parts())
      add_part(part.label, *part.traffic, traffic);
  }
  return traffic;
}

std::vector<std::pair<std::string, double>> Grid::waited() const {
  std::vector<std::pair<std::string, double>> waited;
  for (const auto& group : groups_)
    waited.emplace_back(group->label(), group->waited_seconds());
  for (const auto& group : groups_) {
    for (const Communicator::Part& part : group->parts())
      add_part(part.label, part.waiting->seconds(), waited);
  }
  return waited;
}

double Grid::waited_seconds() const {
  // Asked for in every step: without the labels of waited().
  double sum = 0.0;
  for (const auto& group : groups_) {
    sum += group->waited_seconds();
    for (const Communicator::Part& part : group->parts()) sum += part.waiting->seconds();
  }
  return sum;
}

std::string Grid::exchange_under_way() const {
  for (const auto& group : groups_) {
    const char* exchange = group->exchange_under_way();
    if (exchange != nullptr) return fmt::format("{} of {}", exchange, group->label());
  }
  return {};
}

}  // namespace pleat::comm
