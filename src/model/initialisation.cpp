// SPDX-License-Identifier: Apache-2.0
#include "pleat/base/random.hpp"
#include "pleat/model/parameters.hpp"

namespace pleat::model {
namespace {

using tensor::Initialisation;
using tensor::ParameterSpec;

/// Standard normal times `deviation` at the global index of each element of a matrix's box.
template <class T>
void fill_normal(const ExecSpace& exec, const ParameterSpec& parameter, std::uint64_t seed,
                 double deviation, const DeviceView<T, 1>& w_N) {
  const CounterRandom random(seed, hash_name(parameter.name));
  const std::int64_t local_columns = parameter.local_shape.back();
  const std::int64_t global_columns = parameter.global_shape.back();
  const std::int64_t first_row = parameter.local_offset.front();
  const std::int64_t first_column = parameter.local_offset.back();
  Kokkos::parallel_for(
      "pleat::model::fill_normal",
      Kokkos::RangePolicy<ExecSpace, Kokkos::IndexType<std::int64_t>>(
          exec, 0, parameter.local_count()),
      KOKKOS_LAMBDA(const std::int64_t i) {
        const std::int64_t row = first_row + i / local_columns;
        const std::int64_t column = first_column + i % local_columns;
        w_N(i) = static_cast<T>(
            deviation * random.normal(static_cast<std::uint64_t>(row * global_columns + column)));
      });
}

}  // namespace

template <class T>
void initialise(const ExecSpace& exec, const plan::ModelConfig& config, std::uint64_t seed,
                const tensor::FlatTensors<T>& weights) {
  for (const ParameterSpec& parameter : weights.layout().parameters()) {
    const DeviceView<T, 1> w_N = weights.flat(parameter);
    switch (parameter.initialisation) {
      case Initialisation::kNormal:
        PLEAT_ASSERT(parameter.global_shape.size() == 2, "'{}' is no matrix", parameter.name);
        fill_normal<T>(exec, parameter, seed, config.init_std, w_N);
        break;
      case Initialisation::kOnes: Kokkos::deep_copy(exec, w_N, T(1)); break;
      case Initialisation::kZeros: Kokkos::deep_copy(exec, w_N, T(0)); break;
    }
  }
}

template void initialise<float>(const ExecSpace&, const plan::ModelConfig&, std::uint64_t,
                                const tensor::FlatTensors<float>&);
template void initialise<double>(const ExecSpace&, const plan::ModelConfig&, std::uint64_t,
                                 const tensor::FlatTensors<double>&);

}  // namespace pleat::model
