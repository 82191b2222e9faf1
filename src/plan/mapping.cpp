// SPDX-License-Identifier: Apache-2.0
#include "pleat/plan/mapping.hpp"

#include <algorithm>
#include <functional>
#include <numeric>

#include <fmt/ranges.h>

#include "mapping_rules.hpp"
#include "pleat/base/error.hpp"

namespace pleat::plan {
namespace {

using Found = std::optional<Fault>;

/// What the rules look at, and what they find.
class Rules {
 public:
  Rules(const ModelConfig& config, const Choice& choice)
      : config_(config), choice_(choice), mapping_(choice.mapping) {}

  Found first_fault() {
    check_schedule();
    mapping_.layout.empty() ? check_stages() : check_layout();
    check_heads();
    check_sequence();
    check_feed_forward();
    check_divides("batch.micro", choice_.batch.micro, "batch.global",
                  choice_.batch.global, Key::kMicro);
    check_ranks();
    return std::move(found_);
  }

 private:
  /// Notes a rule's fault, unless an earlier rule has one. \param what  called for the
  /// text
  template <class Text>
  void rule(bool holds, const char* id, const Text& what, std::vector<Key> keys) {
    ++rule_;
    if (holds || found_) return;
    found_ = Fault{rule_, id, what(), std::move(keys)};
  }

  void check_divides(const char* key, std::int64_t degree, const char* what,
                     std::int64_t extent, Key mended_by) {
    rule(extent % degree == 0, "PL0610",
         [&] {
           return fmt::format("{} = {} does not divide {} = {}", key, degree, what,
                              extent);
         },
         {mended_by});
  }

  void check_schedule() {
    const bool known = mapping_.schedule.has_value();
    const bool interleaved = mapping_.schedule == PipelineSchedule::kInterleaved;
    rule(!interleaved || mapping_.pipeline >= 2, "PL0209",
         [] {
           return "parallel.schedule = \"interleaved\", but parallel.pipeline = 1: one "
                  "stage "
                  "has nothing to interleave";
         },
         {Key::kPipeline, Key::kSchedule});
    rule(!interleaved || mapping_.chunks >= 2, "PL0209",
         [&] {
           return fmt::format(
               "parallel.schedule = \"interleaved\" needs parallel.chunks of at "
               "least 2, found {}",
               mapping_.chunks);
         },
         {Key::kChunks, Key::kSchedule});
    rule(!known || interleaved || mapping_.chunks == 1, "PL0209",
         [&] {
           return fmt::format(
               "parallel.chunks = {} needs parallel.schedule = \"interleaved\": "
               "with \"1f1b\" each stage is one chunk",
               mapping_.chunks);
         },
         {Key::kChunks, Key::kSchedule});
  }

  void check_stages() {
    rule(mapping_.virtual_stages() <= config_.layers, "PL0622",
         [&] {
           return fmt::format(
               "parallel.pipeline = {} with parallel.chunks = {} makes {} virtual "
               "stages, but "
               "model.layers = {}; only an explicit parallel.layout may leave a stage "
               "empty",
               mapping_.pipeline, mapping_.chunks, mapping_.virtual_stages(),
               config_.layers);
         },
         {Key::kPipeline, Key::kChunks, Key::kLayout});
  }

  void check_layout() {
    const std::vector<std::int64_t>& layout = mapping_.layout;
    rule(static_cast<std::int64_t>(layout.size()) == mapping_.virtual_stages(), "PL0623",
         [&] {
           return fmt::format(
               "parallel.layout has {} entries, but parallel.pipeline * "
               "parallel.chunks = {} virtual stages",
               layout.size(), mapping_.virtual_stages());
         },
         {Key::kLayout, Key::kPipeline, Key::kChunks});
    const std::int64_t sum =
        std::accumulate(layout.begin(), layout.end(), std::int64_t{0});
    const bool negative =
        std::any_of(layout.begin(), layout.end(), [](std::int64_t n) { return n < 0; });
    rule(!negative && sum == config_.layers, "PL0623",
         [&] {
           return fmt::format(
               "parallel.layout = [{}] holds {} layers, the model has "
               "model.layers = {}; expected numbers of at least 0",
               fmt::join(layout, ", "), sum, config_.layers);
         },
         {Key::kLayout});
  }

  /// Fewer key/value heads than ranks are replicated, evenly.
  void check_heads() {
    const std::int64_t tensor = mapping_.tensor;
    check_divides("parallel.tensor", tensor, "model.heads", config_.heads, Key::kTensor);
    if (tensor <= config_.kv_heads) {
      check_divides("parallel.tensor", tensor, "model.kv_heads", config_.kv_heads,
                    Key::kTensor);
      return;
    }
    rule(tensor % config_.kv_heads == 0, "PL0610",
         [&] {
           return fmt::format(
               "parallel.tensor = {} is no multiple of model.kv_heads = {}: each "
               "key/value "
               "head would have another number of copies",
               tensor, config_.kv_heads);
         },
         {Key::kTensor});
  }

  /// The sequence is a number of pieces.
  void check_pieces(const char* what, std::int64_t pieces, std::vector<Key> keys) {
    const std::int64_t sequence = choice_.batch.sequence;
    rule(
        sequence % pieces == 0, "PL0610",
        [&] {
          return fmt::format("batch.sequence = {} is no multiple of {} = {}", sequence,
                             what, pieces);
        },
        std::move(keys));
  }

  void check_sequence() {
    const std::int64_t context = mapping_.context;
    // Each context rank has two chunks, an early and a late one, for equal causal work.
    check_pieces("2 * parallel.context", context > 1 ? 2 * context : 1,
                 {Key::kSequence, Key::kContext});
    check_pieces("parallel.context * parallel.tensor", context * mapping_.tensor,
                 {Key::kSequence, Key::kContext, Key::kTensor});
  }

  void check_feed_forward() {
    const bool moe = config_.has_moe_layers();
    const MoeConfig& experts = config_.moe;
    check_divides("parallel.expert", mapping_.expert, "moe.experts",
                  moe ? experts.experts : 0, Key::kExpert);
    check_divides("parallel.expert_tensor", mapping_.expert_tensor, "moe.ffn",
                  moe ? experts.ffn : 0, Key::kExpertTensor);
    check_divides("parallel.tensor", mapping_.tensor, "moe.shared_ffn",
                  moe ? experts.shared_ffn : 0, Key::kTensor);
    check_divides("parallel.tensor", mapping_.tensor, "model.ffn",
                  config_.has_dense_layers() ? config_.ffn : 0, Key::kTensor);
  }

  /// comm::GridShape complains of it; here it limits what is offered.
  void check_ranks() {
    const std::int64_t ranks = choice_.ranks;
    const std::int64_t attention = mapping_.pipeline * mapping_.context * mapping_.tensor;
    const std::int64_t experts =
        mapping_.pipeline * mapping_.expert * mapping_.expert_tensor;
    const auto what = [&] {
      return fmt::format("the degrees do not fill {} ranks", ranks);
    };
    rule(ranks % attention == 0, "PL0802", what,
         {Key::kTensor, Key::kContext, Key::kPipeline});
    rule(ranks % experts == 0, "PL0802", what,
         {Key::kExpert, Key::kExpertTensor, Key::kPipeline});
  }

  const ModelConfig& config_;
  const Choice& choice_;
  const Mapping& mapping_;
  int rule_ = 0;
  Found found_;
};

}  // namespace

std::optional<Fault> first_fault(const ModelConfig& config, const Choice& choice) {
  return Rules(config, choice).first_fault();
}

bool is_legal(const ModelConfig& config, const Batch& batch, const Mapping& mapping,
              std::int64_t ranks) {
  return !first_fault(config, {mapping, batch, ranks});
}

void validate_mapping(const ModelConfig& config, const Batch& batch,
                      const Mapping& mapping, std::int64_t ranks) {
  const Choice choice{mapping, batch, ranks};
  const std::optional<Fault> fault = first_fault(config, choice);
  if (!fault || std::string_view(fault->id) == "PL0802") return;
  throw InputError(fault->id, fmt::format("{}\n{}", fault->what,
                                          legal_choices(config, choice, *fault)));
}

}  // namespace pleat::plan
