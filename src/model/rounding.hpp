// SPDX-License-Identifier: Apache-2.0
#pragma once

/// \file
/// \brief Between the type in which activations and weights are stored and the one in which
/// router and loss are computed; where both are one, nothing is copied.

#include <type_traits>

#include "pleat/kernels/elementwise.hpp"
#include "pleat/model/tensor_rows.hpp"

namespace pleat::model {

template <class T>
inline constexpr bool kRounds = !std::is_same_v<T, Accumulator<T>>;

/// \brief The numbers as T, in scratch memory where that is another type.
template <class T>
DeviceView<const T, 2> rounded(const Context& context,
                               const DeviceView<const Accumulator<T>, 2>& x_TE) {
  if constexpr (kRounds<T>) {
    const auto y_TE = context.scratch.take<T>(x_TE.extent(0), x_TE.extent(1));
    kernels::convert<Accumulator<T>, T>(context.exec, flat(x_TE), flat(y_TE));
    return y_TE;
  } else {
    return x_TE;
  }
}

/// \brief The numbers in the accumulator of T, likewise. An empty view stays one.
template <class T>
DeviceView<const Accumulator<T>, 1> widened(const Context& context,
                                            const DeviceView<const T, 1>& x_E) {
  if constexpr (kRounds<T>) {
    if (x_E.size() == 0) return {};
    const auto y_E = context.scratch.take<Accumulator<T>>(x_E.extent(0));
    kernels::convert<T, Accumulator<T>>(context.exec, x_E, y_E);
    return y_E;
  } else {
    return x_E;
  }
}

}  // namespace pleat::model
