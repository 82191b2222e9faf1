// SPDX-License-Identifier: Apache-2.0
#include "inspect_text.hpp"

#include <algorithm>
#include <filesystem>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>

namespace pleat::cli {

namespace {

using io::TensorGroup;

std::string tensor_line(const TensorFacts& tensor) {
  const std::string numbers =
      tensor.statistics ? statistics_text(*tensor.statistics) : "";
  return fmt::format("  {:60} {:4} {:16} {:016x}{}", tensor.name,
                     io::element_name(tensor.type), shape_text(tensor.shape), tensor.checksum,
                     numbers);
}

/// A damaged tensor is always listed.
void print_group(const CheckpointFacts& facts, TensorGroup group,
                 const InspectOptions& options) {
  Totals totals;
  bool any = false;
  std::int64_t damaged = 0;
  for (const TensorFacts& tensor : facts.tensors) {
    if (tensor.group != group) continue;
    any = true;
    totals.add(tensor.type, tensor.shape);
    const bool sound = tensor.damage.empty();
    if (!sound) ++damaged;
    if (options.tensors || options.statistics || !sound)
      fmt::print("{}{}\n", tensor_line(tensor), sound ? "" : "  DAMAGED");
  }
  if (!any) return;
  fmt::print("{:24} {}, {}\n", io::group_path(group), totals.text(),
             damaged == 0 ? "checksums verified" : fmt::format("{} DAMAGED", damaged));
}

/// The first job and the last ones, unless all are wanted.
void print_history(const std::string& history, bool all) {
  constexpr std::size_t kShown = 5;
  const std::vector<std::string> jobs = lines_of(history);
  const std::size_t hidden = all || jobs.size() <= kShown ? 0 : jobs.size() - kShown;
  for (std::size_t i = 0; i < jobs.size(); ++i) {
    if (i > 0 && i <= hidden) continue;
    fmt::print("{:24} {}\n", i == 0 ? "history" : "", jobs[i]);
    if (i == 0 && hidden > 0) fmt::print("{:24} ({} more: --history)\n", "", hidden);
  }
}

void print_provenance(const io::CheckpointInfo& info, const InspectOptions& options) {
  fmt::print("format version           {}\n", info.format_version);
  fmt::print("step                     {}, next sample {}\n", info.step, info.next_sample);
  fmt::print("model                    {}\n", model_text(info.model));
  fmt::print("precision                {}\n", info.precision);
  fmt::print("grid                     {}\n", info.grid.empty() ? "-" : info.grid);
  fmt::print("build                    {}\n", info.build);
  print_history(info.history, options.history);
  if (info.skipped > 0 || info.rollbacks > 0)
    fmt::print("interventions            {} batches left out, {} rollbacks\n", info.skipped,
               info.rollbacks);
  fmt::print("deck                     {}\n",
             info.deck.empty() ? "none" : "kept; --deck prints it");
}

}  // namespace

void Totals::add(io::ElementType type, const tensor::Shape& shape) {
  auto& [tensors, elements] = by_type_[type];
  ++tensors;
  elements += tensor::element_count(shape);
}

std::string Totals::text() const {
  std::string text;
  for (const auto& [type, counts] : by_type_) {
    text += fmt::format("{}{} elements in {} tensors of {}", text.empty() ? "" : ", ",
                        counts.second, counts.first, io::element_name(type));
  }
  return text.empty() ? "none" : text;
}

std::string shape_text(const tensor::Shape& shape) {
  return fmt::format("[{}]", fmt::join(shape, ", "));
}

std::string statistics_text(const Statistics& s) {
  const std::string note =
      s.not_finite > 0 ? fmt::format("  NOT FINITE: {}", s.not_finite) : "";
  if (s.finite == 0) return note;
  return fmt::format("  min {:.6g}  max {:.6g}  mean {:.6g}  rms {:.6g}{}", s.least, s.largest,
                     s.mean, s.rms, note);
}

std::string model_text(const plan::ModelConfig& model) {
  const auto moe = std::count(model.moe_layer.begin(), model.moe_layer.end(), true);
  return fmt::format(
      "{} layers ({} MoE), hidden {}, {} heads, {} kv heads of {}, vocabulary {}; {} "
      "experts, "
      "top {}, ffn {}",
      model.layers, moe, model.hidden, model.heads, model.kv_heads, model.head_dim,
      model.vocab, model.moe.experts, model.moe.top_k, model.moe.ffn);
}

void print_checkpoint(const CheckpointFacts& facts, const InspectOptions& options) {
  fmt::print("checkpoint               {}\n", facts.path);
  fmt::print("file                     {} bytes, written {}\n", facts.bytes, facts.modified);
  if (facts.info) print_provenance(*facts.info, options);
  for (const TensorGroup group : {TensorGroup::kParameters, TensorGroup::kFirstMoment,
                                  TensorGroup::kSecondMoment}) {
    print_group(facts, group, options);
  }
  for (const std::string& damage : facts.damages()) fmt::print("DAMAGED  {}\n", damage);
  if (options.deck && facts.info) fmt::print("\n{}", facts.info->deck);
}

void print_run(const RunFacts& facts, const InspectOptions& options) {
  fmt::print("run                      {}\n", facts.folder);
  for (const CheckpointFacts& checkpoint : facts.checkpoints) {
    const std::string name = std::filesystem::path(checkpoint.path).filename().string();
    const auto damages = checkpoint.damages();
    fmt::print("  {:24} {:>14} bytes  {}  {}{}\n", name, checkpoint.bytes, checkpoint.modified,
               damages.empty() ? "verified" : "DAMAGED",
               name == facts.latest ? "  LATEST" : "");
    for (const std::string& damage : damages) fmt::print("      {}\n", damage);
  }
  for (const std::string& name : facts.unfinished)
    fmt::print("  {:24} being written, or left by a job that was killed\n", name);
  const CheckpointFacts* newest = facts.newest_usable();
  if (newest == nullptr) return;
  fmt::print("\n");
  print_checkpoint(*newest, options);
}

}  // namespace pleat::cli
