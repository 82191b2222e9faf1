// SPDX-License-Identifier: Apache-2.0
//
// The pictures of docs/dispatcher.md show what the dispatchers do: four ranks, ep = 2 and
// etp = 2, four experts, one expert for each of the tokens a to h.
#include <cmath>
#include <fstream>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "dispatch/dispatch_case.hpp"
#include "support/world.hpp"

namespace pleat::test {
namespace {

using plan::DispatcherKind;

constexpr Index kTokens = 2, kExperts = 4;
/// Of tokens a to h.
constexpr std::int32_t kExpertOf[] = {2, 0, 1, 0, 0, 3, 3, 1};
constexpr std::size_t kFirstColumn = 21, kWidth = 16;

/// The rank's column of the line that begins so, behind the heading. "" where there is
/// none.
std::string cell(const std::string& heading, const std::string& line, Index rank) {
  std::ifstream page(PLEAT_SOURCE_DIR "/docs/dispatcher.md");
  std::string text;
  while (std::getline(page, text) && text != heading) {
  }
  while (std::getline(page, text) && !text.starts_with("    " + line + " ")) {
  }
  const std::size_t column = kFirstColumn + static_cast<std::size_t>(rank) * kWidth;
  if (text.size() <= column) return "";
  const std::string found = text.substr(column, kWidth);
  return found.substr(0, found.find_last_not_of(' ') + 1);
}

std::string letter(double token) {
  return token > 0.0 ? std::string(1, static_cast<char>('a' - 1 + std::lround(token)))
                     : ".";
}

/// Tokens with a bar where a part begins. \param begins  of each part, and the end
std::string letters(const Values& tokens, const Integers& begins) {
  std::string text;
  std::size_t part = 1;
  for (std::size_t i = 0; i < tokens.size(); ++i) {
    for (; part + 1 < begins.size() && static_cast<Index>(i) == begins[part]; ++part) {
      text += "| ";
    }
    text += letter(tokens[i]) + " ";
  }
  return text.substr(0, text.find_last_not_of(' ') + 1);
}

std::string letters(const Values& tokens) {
  return letters(tokens, {0, static_cast<Index>(tokens.size())});
}

/// Running sums from 0.
Integers begins_of(const Integers& counts) {
  Integers begins{0};
  for (const Index count : counts) begins.push_back(begins.back() + count);
  return begins;
}

/// A rank at work on its two tokens, which are 1 to 8 for a to h.
struct Pictured {
  explicit Pictured(DispatcherKind kind)
      : grid(make_grid({.expert = 2, .expert_tensor = 2})),
        rank(grid->rank()),
        dispatcher(model::make_dispatcher<double>(kind, kExperts, *grid)) {
    Values index;
    for (Index t = 0; t < kTokens; ++t) {
      index.push_back(kExpertOf[rank * kTokens + t]);
      own.push_back(static_cast<double>(rank * kTokens + t + 1));
    }
    dispatcher->plan(exec, to_device<std::int32_t>(index, kTokens, 1), saved, scratch,
                     record);
  }

  Values at_experts() {
    const auto x_RD = to_device<double>(Values(record.rows), record.rows, 1);
    dispatcher->dispatch(exec, record, to_device<double>(own, kTokens, 1), scratch, x_RD);
    return to_host(x_RD);
  }
  /// What comes back where each of the two shards of an expert has half of its results.
  Values back(Values rows) {
    for (double& value : rows) value *= 0.5;
    const auto y_TD = to_device<double>(Values(kTokens), kTokens, 1);
    dispatcher->combine(exec, record, to_device<double>(rows, record.rows, 1), scratch,
                        y_TD);
    return to_host(y_TD);
  }
  void expect_cell(const std::string& line, const std::string& drawn) const {
    EXPECT_EQ(cell(heading, line, rank), drawn) << heading << ", " << line;
  }

  std::unique_ptr<comm::Grid> grid;
  Index rank;
  Values own;
  ExecSpace exec;
  Arena saved{"saved"}, scratch{"scratch"};
  std::unique_ptr<const model::Dispatcher<double>> dispatcher;
  model::DispatchRecord record;
  std::string heading;
};

TEST(DispatchPicture, OfTheAllToAll) {
  Pictured rank(DispatcherKind::kAllToAll);
  rank.heading = "## All-to-all";
  std::string choices;
  for (Index t = 0; t < kTokens; ++t) {
    choices += letter(rank.own[static_cast<std::size_t>(t)]) + ">" +
               std::to_string(kExpertOf[rank.rank * kTokens + t]) + (t == 0 ? " " : "");
  }
  rank.expect_cell("tokens", choices);

  const Values row_of = to_host(rank.record.permutation.row_TK);
  Values permuted(kTokens);
  for (std::size_t t = 0; t < kTokens; ++t) {
    permuted[static_cast<std::size_t>(row_of[t])] = rank.own[t];
  }
  rank.expect_cell("1 permute", letters(permuted));
  const Values offsets = to_host(rank.record.permutation.offsets_E1);
  std::string counts;
  for (std::size_t e = 0; e < kExperts; ++e) {
    counts += std::to_string(std::lround(offsets[e + 1] - offsets[e])) +
              (e + 1 < kExperts ? " " : "");
  }
  rank.expect_cell("2 counts", counts);

  const Values sorted = rank.at_experts();
  const Values place = to_host(rank.record.sorted_R);
  Values arrived(sorted.size());
  for (std::size_t i = 0; i < sorted.size(); ++i) {
    arrived[i] = sorted[static_cast<std::size_t>(place[i])];
  }
  const Integers shards = begins_of(rank.record.gathered_rows);
  const Index shard = rank.grid->coordinate(comm::Axis::kExpertTensor);
  const std::string received =
      letters({arrived.begin() + shards[static_cast<std::size_t>(shard)],
               arrived.begin() + shards[static_cast<std::size_t>(shard) + 1]});
  rank.expect_cell("3 all-to-all", received);
  rank.expect_cell("4 all-gather", letters(arrived, shards));
  rank.expect_cell("5 sort", letters(sorted, rank.record.host_offsets));
  // The same ways back.
  rank.expect_cell("6 unsort", letters(arrived, shards));
  rank.expect_cell("7 reduce-scatter", received);
  rank.expect_cell("8 all-to-all", letters(permuted));
  rank.expect_cell("9 un-permute", letters(rank.back(sorted)));
  EXPECT_EQ(rank.back(sorted), rank.own);
}

TEST(DispatchPicture, OfTheAllGather) {
  Pictured rank(DispatcherKind::kAllGather);
  rank.heading = "## All-gather";
  const Values picked = rank.at_experts();
  rank.expect_cell("3 pick", letters(picked, rank.record.host_offsets));
  Values spread;
  for (const double row : to_host(rank.record.permutation.row_TK)) {
    spread.push_back(row < 0.0 ? 0.0 : picked[static_cast<std::size_t>(row)]);
  }
  rank.expect_cell("4 spread", letters(spread));
  rank.expect_cell("5 reduce-scatter", letters(rank.back(picked)));
  EXPECT_EQ(rank.back(picked), rank.own);
  // Alike on all ranks, so drawn once.
  Values all;
  for (int token = 1; token <= 8; ++token) all.push_back(token);
  EXPECT_EQ(cell(rank.heading, "2 tokens", 0), letters(all));
}

}  // namespace
}  // namespace pleat::test
