// SPDX-License-Identifier: Apache-2.0
#pragma once

/// \file
/// \brief A small set of declarations with every type of key.

#include "pleat/io/deck.hpp"

namespace pleat::test {

enum class Colour { kRed, kGreen };

struct Example {
  std::int64_t count = 3;
  std::uint64_t seed = 1;
  double rate = 0.5;
  double share = 0.0;
  bool flag = false;
  std::string label = "none";
  Colour colour = Colour::kRed;
  std::string pattern;
  std::vector<std::int64_t> steps;
  std::vector<double> weights;
  std::vector<std::string> paths;
  double inner = 0.25;

  io::DeckKeys keys() {
    io::DeckKeys all;
    all.add_section("run", "The run.");
    all.add(count, {.name = "run.count",
                    .meaning = "how many",
                    .unit = "pieces",
                    .required = true,
                    .range = {.low = 1, .high = 100}});
    all.add(seed, {.name = "run.seed", .meaning = "seed", .range = {.low = 0}});
    all.add(label, {.name = "run.label", .meaning = "a label"});
    all.add(flag, {.name = "run.flag", .meaning = "a flag"});
    all.add_section("form", "The form.");
    all.add(rate, {.name = "form.rate",
                   .meaning = "a rate",
                   .range = {.low = 0, .low_open = true}});
    all.add(share, {.name = "form.share",
                    .meaning = "a share",
                    .range = {.low = 0, .high = 1, .high_open = true}});
    all.add_choice(colour, {{"red", Colour::kRed}, {"green", Colour::kGreen}},
                   {.name = "form.colour", .meaning = "a | colour"});
    all.add_text_choice(pattern, {"dots", "stripes"},
                        {.name = "form.pattern", .meaning = "a pattern"});
    all.add(steps, {.name = "form.steps", .meaning = "some steps", .range = {.low = 1}});
    all.add(weights, {.name = "form.weights", .meaning = "some weights"});
    all.add(paths, {.name = "form.paths", .meaning = "some files"});
    all.add(inner, {.name = "form.group.inner",
                    .meaning = "a key in a group",
                    .fallback = "a quarter"});
    return all;
  }
};

}  // namespace pleat::test
