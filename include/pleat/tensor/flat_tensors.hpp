// SPDX-License-Identifier: Apache-2.0
#pragma once

/// \file
/// \brief One value per parameter element (weight, gradient or moment) in one buffer.

#include <memory>
#include <string>
#include <string_view>

#include "pleat/base/error.hpp"
#include "pleat/base/types.hpp"
#include "pleat/tensor/parameter_layout.hpp"

namespace pleat::tensor {

/// \brief A flat buffer seen through a ParameterLayout. Copies share the buffer.
template <class T>
class FlatTensors {
 public:
  FlatTensors() = default;
  /// \brief Zero-filled.
  FlatTensors(std::shared_ptr<const ParameterLayout> layout, const std::string& label)
      : layout_(std::move(layout)), data_N_(label, layout_->size()) {}

  const ParameterLayout& layout() const { return *layout_; }
  std::shared_ptr<const ParameterLayout> shared_layout() const { return layout_; }
  /// \brief Everything, padding included.
  DeviceView<T, 1> flat() const { return data_N_; }
  /// \brief The elements of one parameter, row-major in its local shape.
  DeviceView<T, 1> flat(const ParameterSpec& parameter) const {
    return DeviceView<T, 1>(data_N_.data() + parameter.offset, parameter.local_count());
  }

  /// \brief A fused tensor that starts at the named parameter, e.g.
  /// `fused<2>("...q_proj.weight", qkv_size, hidden)`; the extents may span the tensors of
  /// the block that follow.
  template <int N, class... Extents>
  DeviceView<T, N> fused(std::string_view first, Extents... extents) const {
    static_assert(sizeof...(Extents) == N);
    const std::int64_t begin = layout_->at(first).offset;
    const std::int64_t count = (std::int64_t{1} * ... * static_cast<std::int64_t>(extents));
    PLEAT_ASSERT(begin + count <= layout_->size(), "tensor '{}' exceeds the buffer", first);
    return DeviceView<T, N>(data_N_.data() + begin, static_cast<std::size_t>(extents)...);
  }

 private:
  std::shared_ptr<const ParameterLayout> layout_;
  DeviceView<T, 1> data_N_;
};

}  // namespace pleat::tensor
