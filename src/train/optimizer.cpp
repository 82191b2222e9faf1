// SPDX-License-Identifier: Apache-2.0
#include "pleat/train/optimizer.hpp"

#include "pleat/base/buffer.hpp"
#include "pleat/kernels/adamw.hpp"
#include "pleat/kernels/elementwise.hpp"

namespace pleat::train {
namespace {

template <class T>
DeviceView<T, 1> part(const DeviceView<T, 1>& x_N, const tensor::Range& range) {
  return DeviceView<T, 1>(x_N.data() + range.begin, range.size());
}

void add_up(const ExecSpace& exec, const DeviceView<const double, 1>& terms_R,
            const DeviceView<double, 0>& sum) {
  const auto count = terms_R.extent(0);
  Kokkos::parallel_for(
      "pleat::train::add_up", Kokkos::RangePolicy<ExecSpace>(exec, 0, 1),
      KOKKOS_LAMBDA(const int) {
        double total = 0.0;
        for (std::size_t r = 0; r < count; ++r) total += terms_R(r);
        sum() = total;
      });
}

}  // namespace

template <class T>
Optimizer<T>::Optimizer(const OptimizerSection& section, const ParameterStore<T>& store,
                        const comm::Grid& grid)
    : section_(section),
      grid_(grid),
      first_moment_N_(make_buffer<M>("pleat::train::first_moment", store.shard_size())),
      second_moment_N_(make_buffer<M>("pleat::train::second_moment", store.shard_size())),
      sum_of_squares_("pleat::train::sum_of_squares"),
      norm_("pleat::train::gradient_norm"),
      clip_scale_("pleat::train::clip_scale") {
  const auto& buckets = store.layout().buckets();
  for (std::size_t b = 0; b < buckets.size(); ++b) {
    const tensor::Range shard = store.shard_range(b);
    for (const tensor::Segment& segment : buckets[b].segments) {
      const tensor::Range common = tensor::intersection(shard, segment.range);
      if (common.size() <= 0) continue;
      runs_.push_back({b,
                       {common.begin - shard.begin, common.end - shard.begin},
                       segment.decayed,
                       segment.counted});
    }
  }
  squares_R_ = DeviceView<double, 1>("pleat::train::squares", runs_.size());
}

template <class T>
void Optimizer<T>::sum_norm(const ExecSpace& exec, const ParameterStore<T>& store) {
  for (std::size_t r = 0; r < runs_.size(); ++r) {
    if (!runs_[r].counted) continue;  // stays 0
    kernels::sum_of_squares<M>(
        exec, part<M>(store.gradient_shard(runs_[r].bucket), runs_[r].in_shard), scratch_,
        DeviceView<double, 0>(squares_R_.data() + r));
  }
  add_up(exec, squares_R_, sum_of_squares_);
  grid_.group(comm::GroupName::kWorld)
      .all_reduce(DeviceView<double, 1>(sum_of_squares_.data(), 1), comm::Reduction::kSum);
}

template <class T>
void Optimizer<T>::measure(const ExecSpace& exec, const ParameterStore<T>& store) {
  sum_norm(exec, store);
  kernels::clip_factor(exec, section_.clip, sum_of_squares_, norm_, clip_scale_);
}

template <class T>
void Optimizer<T>::update(const ExecSpace& exec, std::int64_t step, double learning_rate,
                          const ParameterStore<T>& store) {
  for (const Run& run : runs_) {
    const kernels::AdamWOptions options{
        .learning_rate = learning_rate,
        .beta1 = section_.beta1,
        .beta2 = section_.beta2,
        .eps = section_.eps,
        .weight_decay = run.decayed ? section_.weight_decay : 0.0,
        .step = step};
    const tensor::Range moments{store.shard_begin(run.bucket) + run.in_shard.begin,
                                store.shard_begin(run.bucket) + run.in_shard.end};
    const auto gradient_N = part<M>(store.gradient_shard(run.bucket), run.in_shard);
    const auto m_N = part<M>(first_moment_N_, moments);
    const auto v_N = part<M>(second_moment_N_, moments);
    const auto w_N = part<M>(store.weight_shard(run.bucket), run.in_shard);
    if constexpr (ParameterStore<T>::kHasMasters) {
      kernels::adamw_update<M, T>(exec, options, clip_scale_, gradient_N, m_N, v_N, w_N,
                                  part<T>(store.model_shard(run.bucket), run.in_shard));
    } else {
      kernels::adamw_update<M>(exec, options, clip_scale_, gradient_N, m_N, v_N, w_N);
    }
  }
}

template class Optimizer<float>;
template class Optimizer<double>;
template class Optimizer<Bf16>;

}  // namespace pleat::train
