// SPDX-License-Identifier: Apache-2.0
#include "pleat/train/generator.hpp"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "pleat/base/copy.hpp"
#include "pleat/base/error.hpp"
#include "pleat/base/random.hpp"
#include "pleat/io/checkpoint.hpp"
#include "pleat/io/tokenizer.hpp"
#include "pleat/model/transformer.hpp"

namespace pleat::train {
namespace {

/// A model in single precision that looks at the last tokens of a text.
class Predictor {
 public:
  Predictor(const std::string& checkpoint, std::int64_t context)
      : config_(io::CheckpointReader(checkpoint).info().model),
        context_(context),
        placement_(model::make_placement(config_)),
        weights_(model::parameter_layout(placement_), "pleat::train::weights"),
        model_(placement_, grid_,
               {.sequence = context, .recompute = plan::Recompute::kFull}),
        tokens_T_("pleat::train::tokens", context),
        real_T_("pleat::train::real", context),
        logits_TV_("pleat::train::logits", context, config_.vocab) {
    io::load_parameters<float>(checkpoint, weights_.layout(), weights_);
    views_ = model::bind_tensors<float>(placement_, weights_);
    fill_tensor(real_T_, std::uint8_t{1});
  }

  std::int64_t vocab() const { return config_.vocab; }

  /// Logits of the token that follows.
  std::vector<double> next_logits(const std::vector<std::int32_t>& text) {
    const auto count = std::min<std::int64_t>(context_, static_cast<std::int64_t>(text.size()));
    const HostView<const std::int32_t, 1> last(text.data() + text.size() - count, count);
    const DeviceView<std::int32_t, 1> tokens_T(tokens_T_.data(), count);
    copy_tensor(tokens_T, last);
    const DeviceView<float, 2> logits_TV(logits_TV_.data(), count, config_.vocab);
    const model::MicroBatch batch{
        .sequences = 1,
        .sequence = count,
        .tokens_U = tokens_T,
        .labels_U = tokens_T,
        .loss_mask_U = DeviceView<const std::uint8_t, 1>(real_T_.data(), count),
        .real_T = DeviceView<const std::uint8_t, 1>(real_T_.data(), count)};
    model_.logits(exec_, batch, views_, logits_TV);
    const DeviceView<float, 1> row_V(logits_TV.data() + (count - 1) * config_.vocab,
                                     config_.vocab);
    exec_.fence("pleat::train::generate");
    const auto host_V = host_copy(row_V);
    return {host_V.data(), host_V.data() + host_V.extent(0)};
  }

 private:
  plan::ModelConfig config_;
  std::int64_t context_;
  ExecSpace exec_;
  comm::Grid grid_;
  model::Placement placement_;
  tensor::FlatTensors<float> weights_;
  model::ModelTensors<float> views_;
  model::Transformer<float> model_;
  DeviceView<std::int32_t, 1> tokens_T_;
  DeviceView<std::uint8_t, 1> real_T_;
  DeviceView<float, 2> logits_TV_;
};

std::vector<std::int32_t> encode_prompt(const GenerateOptions& options,
                                        const io::Tokenizer& tokenizer, std::int64_t vocab) {
  const std::vector<std::int32_t> text = tokenizer.encode(options.prompt);
  PLEAT_REQUIRE(!text.empty(), InputError, "PL0930",
                "the prompt is empty\nHINT: give at least one character with --prompt.");
  const auto largest = *std::max_element(text.begin(), text.end());
  PLEAT_REQUIRE(largest < vocab, InputError, "PL0930",
                "the prompt has token {}, but the vocabulary of '{}' ends at {}\n"
                "HINT: name the tokenizer of the training data with --tokenizer.",
                largest, options.checkpoint, vocab - 1);
  return text;
}

}  // namespace

std::int64_t sample_token(const std::vector<double>& logits, double temperature,
                          std::int64_t top_k, double uniform) {
  std::vector<std::int64_t> order(logits.size());
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(), [&](std::int64_t a, std::int64_t b) {
    return logits[static_cast<std::size_t>(a)] > logits[static_cast<std::size_t>(b)];
  });
  if (temperature == 0.0) return order.front();
  if (top_k > 0 && top_k < static_cast<std::int64_t>(order.size())) {
    order.resize(static_cast<std::size_t>(top_k));
  }
  const double largest = logits[static_cast<std::size_t>(order.front())];
  std::vector<double> cumulative;
  double sum = 0.0;
  for (const std::int64_t token : order) {
    sum += std::exp((logits[static_cast<std::size_t>(token)] - largest) / temperature);
    cumulative.push_back(sum);
  }
  const auto chosen = std::upper_bound(cumulative.begin(), cumulative.end(), uniform * sum);
  const auto index = std::min<std::ptrdiff_t>(chosen - cumulative.begin(),
                                              static_cast<std::ptrdiff_t>(order.size()) - 1);
  return order[static_cast<std::size_t>(index)];
}

std::string generate(const GenerateOptions& options) {
  const auto tokenizer = io::make_tokenizer(options.tokenizer);
  Predictor predictor(options.checkpoint, options.context);
  std::vector<std::int32_t> text = encode_prompt(options, *tokenizer, predictor.vocab());
  const std::size_t prompt_size = text.size();
  const CounterRandom random(options.seed, hash_name("pleat generate"));
  for (std::int64_t i = 0; i < options.tokens; ++i) {
    const auto index = static_cast<std::uint64_t>(i);
    text.push_back(static_cast<std::int32_t>(
        sample_token(predictor.next_logits(text), options.temperature, options.top_k,
                     random.uniform(index))));
  }
  return tokenizer->decode(
      std::span<const std::int32_t>(text.data() + prompt_size, text.size() - prompt_size));
}

}  // namespace pleat::train
