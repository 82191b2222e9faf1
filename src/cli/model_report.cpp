// SPDX-License-Identifier: Apache-2.0
#include "model_report.hpp"

#include <algorithm>
#include <numeric>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <unistd.h>

namespace pleat::cli {
namespace {

struct TensorRow {
  std::string name;
  std::vector<std::int64_t> shape;
  std::int64_t copies;
};

std::int64_t elements(const TensorRow& row) {
  return std::accumulate(row.shape.begin(), row.shape.end(), row.copies,
                         [](std::int64_t a, std::int64_t b) { return a * b; });
}

void add_swiglu(std::vector<TensorRow>& rows, const std::string& name,
                std::int64_t hidden, std::int64_t ffn, std::int64_t copies) {
  rows.push_back({name + " gate, up", {2 * ffn, hidden}, copies});
  rows.push_back({name + " down", {hidden, ffn}, copies});
}

void add_attention(std::vector<TensorRow>& rows, const plan::ModelConfig& config) {
  rows.push_back(
      {"attention q, k, v", {config.qkv_size(), config.hidden}, config.layers});
  if (config.qkv_bias)
    rows.push_back({"q, k, v bias", {config.qkv_size()}, config.layers});
  if (config.qk_norm) rows.push_back({"q, k norm", {config.head_dim}, 2 * config.layers});
  rows.push_back({"attention output", {config.hidden, config.q_size()}, config.layers});
}

void add_moe(std::vector<TensorRow>& rows, const plan::ModelConfig& config,
             std::int64_t layers) {
  const plan::MoeConfig& moe = config.moe;
  rows.push_back({"router", {moe.experts, config.hidden}, layers});
  add_swiglu(rows, "expert", config.hidden, moe.ffn, layers * moe.experts);
  if (moe.shared_ffn > 0) {
    add_swiglu(rows, "shared expert", config.hidden, moe.shared_ffn, layers);
  }
  if (moe.shared_gate)
    rows.push_back({"shared expert's gate", {1, config.hidden}, layers});
}

std::vector<TensorRow> tensor_rows(const plan::ModelConfig& config) {
  const std::int64_t moe_layers =
      std::count(config.moe_layer.begin(), config.moe_layer.end(), true);
  const std::int64_t dense_layers = config.layers - moe_layers;
  std::vector<TensorRow> rows;
  rows.push_back({config.tied ? "embedding and head" : "embedding",
                  {config.vocab, config.hidden},
                  1});
  add_attention(rows, config);
  if (moe_layers > 0) add_moe(rows, config, moe_layers);
  if (dense_layers > 0) {
    add_swiglu(rows, "dense layer", config.hidden, config.ffn, dense_layers);
  }
  rows.push_back({"norms", {config.hidden}, 2 * config.layers + 1});
  if (!config.tied) rows.push_back({"head", {config.vocab, config.hidden}, 1});
  return rows;
}

/// 46702792704 as "46,702,792,704".
std::string grouped(std::int64_t number) {
  std::string text = std::to_string(number);
  for (std::size_t i = text.size(); i > 3; i -= 3) text.insert(i - 3, 1, ',');
  return text;
}

std::string billions(std::int64_t parameters) {
  const double value = static_cast<double>(parameters);
  if (value >= 1.0e9) return fmt::format("{:.2f} B", value * 1.0e-9);
  return fmt::format("{:.2f} M", value * 1.0e-6);
}

std::string gibibytes(double bytes) {
  constexpr double kMebi = 1024.0 * 1024.0;
  if (bytes < 1024.0 * kMebi) return fmt::format("{:.1f} MiB", bytes / kMebi);
  return fmt::format("{:.2f} GiB", bytes / (1024.0 * kMebi));
}

std::string operations(double flops) {
  if (flops >= 1.0e9) return fmt::format("{:.2f} GFLOP", flops * 1.0e-9);
  return fmt::format("{:.2f} MFLOP", flops * 1.0e-6);
}

const char* recompute_name(plan::Recompute recompute) {
  switch (recompute) {
    case plan::Recompute::kNone:
      return "none";
    case plan::Recompute::kSelective:
      return "selective";
    case plan::Recompute::kFull:
      return "full";
  }
  return "?";
}

/// What the fullest of the stages needs.
plan::MemoryUse fullest(const plan::ModelConfig& config,
                        const std::vector<plan::MemoryRequest>& stages) {
  plan::MemoryUse most;
  for (const plan::MemoryRequest& stage : stages) {
    const plan::MemoryUse use = training_memory(config, stage);
    if (use.total() > most.total()) most = use;
  }
  return most;
}

std::string recompute_totals(const plan::ModelConfig& config,
                             std::vector<plan::MemoryRequest> stages) {
  std::vector<std::string> totals;
  for (const plan::Recompute mode :
       {plan::Recompute::kNone, plan::Recompute::kSelective, plan::Recompute::kFull}) {
    for (plan::MemoryRequest& stage : stages) stage.recompute = mode;
    totals.push_back(fmt::format("{} {}", recompute_name(mode),
                                 gibibytes(fullest(config, stages).total())));
  }
  return fmt::format("  with recompute = {}\n", fmt::join(totals, ", "));
}

/// A line for each stage of the pipeline.
std::string stage_table(const plan::ModelConfig& config,
                        const std::vector<plan::MemoryRequest>& stages) {
  if (stages.size() == 1) return "";
  std::string text =
      fmt::format("  {:<6} {:>12} {:>12} {:>12} {:>12} {:>12}\n", "stage", "parameters",
                  "gradients", "optimizer", "activations", "total");
  for (std::size_t stage = 0; stage < stages.size(); ++stage) {
    const plan::MemoryUse use = training_memory(config, stages[stage]);
    text += fmt::format("  {:<6} {:>12} {:>12} {:>12} {:>12} {:>12}\n", stage,
                        gibibytes(use.parameters), gibibytes(use.gradients),
                        gibibytes(use.optimizer), gibibytes(use.activations),
                        gibibytes(use.total()));
  }
  return text;
}

}  // namespace

std::string shape_report(const plan::ModelConfig& config) {
  const std::int64_t moe_layers =
      std::count(config.moe_layer.begin(), config.moe_layer.end(), true);
  std::string text = fmt::format(
      "model: {} layers ({} MoE, {} dense), hidden {}, {} heads, {} kv heads, head dim "
      "{}\n",
      config.layers, moe_layers, config.layers - moe_layers, config.hidden, config.heads,
      config.kv_heads, config.head_dim);
  if (moe_layers > 0) {
    text += fmt::format("  {} experts of ffn {}, top {}\n", config.moe.experts,
                        config.moe.ffn, config.moe.top_k);
  }
  text += fmt::format("  {:<22} {:>18} {:>7} {:>19}\n", "tensor", "shape", "number",
                      "parameters");
  for (const TensorRow& row : tensor_rows(config)) {
    text += fmt::format("  {:<22} {:>18} {:>7} {:>19}\n", row.name,
                        fmt::format("[{}]", fmt::join(row.shape, ", ")), row.copies,
                        grouped(elements(row)));
  }
  const plan::ParameterCount count = plan::count_parameters(config);
  text += fmt::format("parameters: {} total ({}), {} active per token ({})\n",
                      billions(count.total), grouped(count.total), billions(count.active),
                      grouped(count.active));
  return text;
}

std::string flop_report(const plan::ModelConfig& config, std::int64_t sequence) {
  const plan::FlopCount flops = plan::training_flops_per_token(config, sequence);
  return fmt::format(
      "training FLOPs per token at sequence {}: {} (causal rule), {} (full-attention "
      "rule)\n",
      sequence, operations(flops.causal_attention), operations(flops.full_attention));
}

std::string memory_report(const plan::ModelConfig& config,
                          const std::vector<plan::MemoryRequest>& stages) {
  const plan::MemoryUse use = fullest(config, stages);
  std::string text =
      fmt::format("memory of the fullest rank: {}\n", gibibytes(use.total()));
  const std::pair<const char*, double> items[] = {
      {"parameters", use.parameters}, {"gradients", use.gradients},
      {"optimizer", use.optimizer},   {"reduction", use.reduction},
      {"activations", use.activations},
      {"recomputed", use.recomputed}, {"workspace", use.workspace},
      {"  of it logits", use.logits}, {"program", use.program}};
  for (const auto& [name, bytes] : items) {
    if (bytes > 0.0) text += fmt::format("  {:<14} {:>12}\n", name, gibibytes(bytes));
  }
  text += recompute_totals(config, stages) + stage_table(config, stages);
  const double machine = static_cast<double>(sysconf(_SC_PHYS_PAGES)) *
                         static_cast<double>(sysconf(_SC_PAGE_SIZE));
  if (use.total() > machine) {
    text += fmt::format("  NOTE: this machine has {}\n", gibibytes(machine));
  }
  return text;
}

}  // namespace pleat::cli
