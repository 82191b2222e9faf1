// SPDX-License-Identifier: Apache-2.0
/// \file
/// \brief What a deck could say instead of a mapping that breaks a rule. Every choice is
/// tried with all rules before it is offered.
#include <algorithm>
#include <functional>
#include <map>
#include <numeric>

#include <fmt/ranges.h>

#include "mapping_rules.hpp"
#include "pleat/base/error.hpp"

namespace pleat::plan {
namespace {

using Accept = std::function<bool(const Choice&)>;

const char* key_name(Key key) {
  switch (key) {
    case Key::kPipeline:
      return "parallel.pipeline";
    case Key::kContext:
      return "parallel.context";
    case Key::kTensor:
      return "parallel.tensor";
    case Key::kExpert:
      return "parallel.expert";
    case Key::kExpertTensor:
      return "parallel.expert_tensor";
    case Key::kChunks:
      return "parallel.chunks";
    case Key::kSchedule:
      return "parallel.schedule";
    case Key::kSequence:
      return "batch.sequence";
    case Key::kMicro:
      return "batch.micro";
    case Key::kLayout:
      return "parallel.layout";
  }
  PLEAT_FAIL(InternalError, "PL0100", "unknown key of a mapping");
}

/// Where the number of a key stands; null for those that are no number.
std::int64_t* number(Choice& choice, Key key) {
  switch (key) {
    case Key::kPipeline:
      return &choice.mapping.pipeline;
    case Key::kContext:
      return &choice.mapping.context;
    case Key::kTensor:
      return &choice.mapping.tensor;
    case Key::kExpert:
      return &choice.mapping.expert;
    case Key::kExpertTensor:
      return &choice.mapping.expert_tensor;
    case Key::kChunks:
      return &choice.mapping.chunks;
    case Key::kSequence:
      return &choice.batch.sequence;
    case Key::kMicro:
      return &choice.batch.micro;
    case Key::kSchedule:
    case Key::kLayout:
      return nullptr;
  }
  PLEAT_FAIL(InternalError, "PL0100", "unknown key of a mapping");
}

/// No larger number can be legal; of a sequence, the next legal one is not further away.
std::int64_t largest(const ModelConfig& config, const Choice& choice, Key key) {
  const Mapping& mapping = choice.mapping;
  switch (key) {
    case Key::kPipeline:
    case Key::kChunks:
      return std::max(config.layers, static_cast<std::int64_t>(mapping.layout.size()));
    case Key::kContext:
      return choice.batch.sequence;
    case Key::kTensor:
      return config.heads;
    case Key::kExpert:
      return config.moe.experts;
    case Key::kExpertTensor:
      return config.moe.ffn;
    case Key::kSequence:
      return choice.batch.sequence + 2 * mapping.context * mapping.tensor;
    case Key::kMicro:
      return choice.batch.global;
    case Key::kSchedule:
    case Key::kLayout:
      return 0;
  }
  PLEAT_FAIL(InternalError, "PL0100", "unknown key of a mapping");
}

std::string number_text(Key key, std::int64_t value) {
  return fmt::format("{} = {}", key_name(key), value);
}

/// A choice, and how a deck puts the value of one key of it.
struct Offer {
  Choice choice;
  Key key;
  std::string text;
};

/// The nearest accepted numbers below and above.
std::vector<Offer> nearest_numbers(const ModelConfig& config, const Choice& choice,
                                   Key key, const Accept& accept) {
  std::vector<Offer> offers;
  Choice other = choice;
  std::int64_t& value = *number(other, key);
  const std::int64_t current = value;
  const std::int64_t most = largest(config, choice, key);
  const auto try_number = [&](std::int64_t tried) {
    value = tried;
    if (!accept(other)) return false;
    offers.push_back({other, key, number_text(key, tried)});
    return true;
  };
  for (std::int64_t v = std::min(current - 1, most); v >= 1 && !try_number(v);) --v;
  for (std::int64_t v = current + 1; v <= most && !try_number(v);) ++v;
  return offers;
}

/// Without a layout, and with the layers spread evenly.
std::vector<Offer> layouts(const ModelConfig& config, const Choice& choice,
                           const Accept& accept) {
  std::vector<Offer> offers;
  const auto offer = [&](const std::vector<std::int64_t>& layout) {
    Choice other = choice;
    other.mapping.layout = layout;
    if (!accept(other)) return;
    offers.push_back({other, Key::kLayout,
                      fmt::format("parallel.layout = [{}]", fmt::join(layout, ", "))});
  };
  if (!choice.mapping.layout.empty()) offer({});
  const std::int64_t stages = choice.mapping.virtual_stages();
  constexpr std::int64_t kWrittenOut = 64;
  if (stages > kWrittenOut) return offers;
  std::vector<std::int64_t> even;
  for (std::int64_t stage = 0; stage < stages; ++stage) {
    even.push_back(config.layers / stages + (stage < config.layers % stages ? 1 : 0));
  }
  offer(even);
  return offers;
}

std::vector<Offer> schedules(const Choice& choice, const Accept& accept) {
  const bool interleaved = choice.mapping.schedule == PipelineSchedule::kInterleaved;
  Choice other = choice;
  other.mapping.schedule = interleaved ? PipelineSchedule::kOneForwardOneBackward
                                       : PipelineSchedule::kInterleaved;
  if (!accept(other)) return {};
  return {
      {other, Key::kSchedule,
       fmt::format("parallel.schedule = \"{}\"", interleaved ? "1f1b" : "interleaved")}};
}

std::vector<Offer> offers_of(const ModelConfig& config, const Choice& choice, Key key,
                             const Accept& accept) {
  if (key == Key::kLayout) return layouts(config, choice, accept);
  if (key == Key::kSchedule) return schedules(choice, accept);
  return nearest_numbers(config, choice, key, accept);
}

/// Several keys together: one after the other, each to the nearest value that mends the
/// first rule that is broken and no earlier one.
std::string several_keys(const ModelConfig& config, Choice choice) {
  std::map<Key, std::string> texts;
  for (auto fault = first_fault(config, choice); fault;
       fault = first_fault(config, choice)) {
    const Accept mends = [&](const Choice& other) {
      const auto next = first_fault(config, other);
      return !next || next->rule > fault->rule;
    };
    std::vector<Offer> offers;
    for (const Key key : fault->keys) {
      if (!offers.empty()) break;
      offers = offers_of(config, choice, key, mends);
    }
    if (offers.empty()) return "";
    texts[offers.front().key] = offers.front().text;
    choice = offers.front().choice;
  }
  std::vector<std::string> values;
  for (const auto& [key, text] : texts) values.push_back(text);
  return fmt::format("{}", fmt::join(values, " with "));
}

/// Nothing is cut: fills any number of ranks with data ranks.
std::string undivided(const Choice& choice) {
  Choice given = choice;
  std::vector<std::string> values;
  for (const Key key : {Key::kPipeline, Key::kContext, Key::kTensor, Key::kExpert,
                        Key::kExpertTensor, Key::kChunks}) {
    if (*number(given, key) != 1) values.push_back(number_text(key, 1));
  }
  if (choice.mapping.schedule == PipelineSchedule::kInterleaved)
    values.emplace_back("parallel.schedule = \"1f1b\"");
  if (!choice.mapping.layout.empty()) values.emplace_back("parallel.layout = []");
  return fmt::format("{}", fmt::join(values, " with "));
}

}  // namespace

std::string legal_choices(const ModelConfig& config, const Choice& choice,
                          const Fault& fault) {
  const Accept legal = [&](const Choice& other) { return !first_fault(config, other); };
  std::vector<std::string> texts;
  for (const Key key : fault.keys) {
    for (const Offer& offer : offers_of(config, choice, key, legal))
      texts.push_back(offer.text);
  }
  if (texts.empty()) texts.push_back(several_keys(config, choice));
  if (texts.front().empty()) texts.front() = undivided(choice);
  return fmt::format("HINT: the nearest legal {} {}.",
                     texts.size() == 1 ? "choice is" : "choices are",
                     fmt::join(texts, ", or "));
}

}  // namespace pleat::plan
