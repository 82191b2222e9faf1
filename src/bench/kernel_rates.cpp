// SPDX-License-Identifier: Apache-2.0
#include <string>
#include <type_traits>

#include "pleat/bench/rates.hpp"
#include "precision_name.hpp"
#include "timed_kernel.hpp"
#include "timing.hpp"

namespace pleat::bench {
namespace {

template <class T>
void append(std::vector<Maker<T>>& all, const std::vector<Maker<T>>& some) {
  all.insert(all.end(), some.begin(), some.end());
}

template <class T>
std::vector<Maker<T>> makers(Kernels which) {
  std::vector<Maker<T>> all = product_makers<T>();
  if (which == Kernels::kProducts) return all;
  append(all, attention_makers<T>());
  append(all, row_makers<T>());
  if constexpr (std::is_same_v<T, Accumulator<T>>) append(all, wide_makers<T>());
  return all;
}

template <class T>
void measure_precision(const Shape& shape, Kernels which, const std::vector<Peak>& peaks,
                       comm::Communicator& ranks, double budget,
                       std::vector<Rate>& rates) {
  const Workbench<T> workbench{shape};
  for (const Maker<T>& maker : makers<T>(which)) {
    const TimedKernel kernel = maker(workbench);
    Rate rate{.name = kernel.name,
              .precision = precision_name<T>(),
              .shape = kernel.shape,
              .work = kernel.work,
              .unit = kernel.unit,
              .peak = kernel.unit == std::string("B/s") ? "memory" : precision_name<T>()};
    rate.seconds = best_seconds(workbench.exec, ranks, budget, kernel.run);
    rate.share = rate.rate() / peak_of(peaks, rate.peak);
    rates.push_back(std::move(rate));
  }
}

}  // namespace

Shape default_shape() {
  return {.name = "bench-s",
          .batch = 4,
          .sequence = 512,
          .hidden = 512,
          .heads = 8,
          .kv_heads = 4,
          .head_dim = 64,
          .vocabulary = 8192,
          .experts = 8,
          .top_k = 2,
          .ffn = 1024};
}

Shape shape_of(const train::RunConfig& config) {
  const plan::ModelConfig& model = config.model;
  // A dense layer is one expert that every token takes.
  const bool moe = model.has_moe_layers();
  return {.name = config.run.name,
          .batch = config.batch.micro,
          .sequence = config.batch.sequence,
          .hidden = model.hidden,
          .heads = model.heads,
          .kv_heads = model.kv_heads,
          .head_dim = model.head_dim,
          .vocabulary = model.vocab,
          .experts = moe ? model.moe.experts : 1,
          .top_k = moe ? model.moe.top_k : 1,
          .ffn = moe ? model.moe.ffn : model.ffn};
}

std::vector<Rate> measure_kernels(const Shape& shape, Kernels which,
                                  const std::vector<Peak>& peaks,
                                  comm::Communicator& ranks, double seconds) {
  const auto measurements =
      static_cast<double>(makers<double>(which).size() + makers<float>(which).size() +
                          makers<Bf16>(which).size());
  const double budget = seconds / measurements;
  std::vector<Rate> rates;
  measure_precision<double>(shape, which, peaks, ranks, budget, rates);
  measure_precision<float>(shape, which, peaks, ranks, budget, rates);
  measure_precision<Bf16>(shape, which, peaks, ranks, budget, rates);
  return rates;
}

}  // namespace pleat::bench
