// SPDX-License-Identifier: Apache-2.0
#include "pleat/base/copy.hpp"
#include "pleat/base/random.hpp"
#include "pleat/model/parameters.hpp"

namespace pleat::model {
namespace {

using tensor::Initialisation;
using tensor::ParameterSpec;

/// Standard normal times `deviation` at the global index of each element of a matrix's box,
/// from element `first` of the box on.
template <class T>
void fill_normal(const ExecSpace& exec, const ParameterSpec& parameter, std::int64_t first,
                 std::uint64_t seed, double deviation, const DeviceView<T, 1>& w_N) {
  const CounterRandom random(seed, hash_name(parameter.name));
  const std::int64_t local_columns = parameter.local_shape.back();
  const std::int64_t global_columns = parameter.global_shape.back();
  const std::int64_t first_row = parameter.local_offset.front();
  const std::int64_t first_column = parameter.local_offset.back();
  Kokkos::parallel_for(
      "pleat::model::fill_normal",
      Kokkos::RangePolicy<ExecSpace, Kokkos::IndexType<std::int64_t>>(
          exec, 0, static_cast<std::int64_t>(w_N.extent(0))),
      KOKKOS_LAMBDA(const std::int64_t i) {
        const std::int64_t row = first_row + (first + i) / local_columns;
        const std::int64_t column = first_column + (first + i) % local_columns;
        w_N(i) = static_cast<T>(
            deviation * random.normal(static_cast<std::uint64_t>(row * global_columns + column)));
      });
}

}  // namespace

template <class T>
void initialise_piece(const ExecSpace& exec, const plan::ModelConfig& config,
                      std::uint64_t seed, const ParameterSpec& parameter, std::int64_t first,
                      const DeviceView<T, 1>& w_N) {
  switch (parameter.initialisation) {
    case Initialisation::kNormal:
      PLEAT_ASSERT(parameter.global_shape.size() == 2, "'{}' is no matrix", parameter.name);
      fill_normal<T>(exec, parameter, first, seed, config.init_std, w_N);
      break;
    case Initialisation::kOnes: fill_tensor(exec, w_N, T(1)); break;
    case Initialisation::kZeros: fill_tensor(exec, w_N, T(0)); break;
  }
}

template <class T>
void initialise(const ExecSpace& exec, const plan::ModelConfig& config, std::uint64_t seed,
                const tensor::FlatTensors<T>& weights) {
  for (const ParameterSpec& parameter : weights.layout().parameters()) {
    initialise_piece<T>(exec, config, seed, parameter, 0, weights.flat(parameter));
  }
}

template void initialise_piece<float>(const ExecSpace&, const plan::ModelConfig&, std::uint64_t,
                                      const ParameterSpec&, std::int64_t,
                                      const DeviceView<float, 1>&);
template void initialise_piece<double>(const ExecSpace&, const plan::ModelConfig&, std::uint64_t,
                                       const ParameterSpec&, std::int64_t,
                                       const DeviceView<double, 1>&);
template void initialise<float>(const ExecSpace&, const plan::ModelConfig&, std::uint64_t,
                                const tensor::FlatTensors<float>&);
template void initialise<double>(const ExecSpace&, const plan::ModelConfig&, std::uint64_t,
                                 const tensor::FlatTensors<double>&);

}  // namespace pleat::model
