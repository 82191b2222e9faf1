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
  /// \brief Zero-filled, of all parameters.
  FlatTensors(std::shared_ptr<const ParameterLayout> layout, const std::string& label)
      : layout_(std::move(layout)),
        data_N_(label, layout_->size()),
        range_{0, layout_->size()} {}
  /// \brief Sees the parameters of a range of the layout in a buffer that begins with it.
  FlatTensors(std::shared_ptr<const ParameterLayout> layout, const DeviceView<T, 1>& data_N,
              const Range& range)
      : layout_(std::move(layout)), data_N_(data_N), range_(range) {}

  const ParameterLayout& layout() const { return *layout_; }
  std::shared_ptr<const ParameterLayout> shared_layout() const { return layout_; }
  /// \brief Everything, padding included.
  DeviceView<T, 1> flat() const { return data_N_; }
  /// \brief The elements of one parameter, row-major in its local shape.
  DeviceView<T, 1> flat(const ParameterSpec& parameter) const {
    return part({parameter.offset, parameter.offset + parameter.local_count()});
  }
  /// \brief The elements of a range of the layout.
  DeviceView<T, 1> part(const Range& part) const {
    PLEAT_ASSERT(part.begin >= range_.begin && part.end <= range_.end,
                 "elements {} to {} are not in this buffer", part.begin, part.end);
    return DeviceView<T, 1>(data_N_.data() + (part.begin - range_.begin), part.size());
  }

  /// \brief A fused tensor that starts at the named parameter, e.g.
  /// `fused<2>("...q_proj.weight", qkv_size, hidden)`; the extents may span the tensors of
  /// the block that follow.
  template <int N, class... Extents>
  DeviceView<T, N> fused(std::string_view first, Extents... extents) const {
    static_assert(sizeof...(Extents) == N);
    const std::int64_t begin = layout_->at(first).offset;
    const std::int64_t count = (std::int64_t{1} * ... * static_cast<std::int64_t>(extents));
    return DeviceView<T, N>(part({begin, begin + count}).data(),
                            static_cast<std::size_t>(extents)...);
  }

 private:
  std::shared_ptr<const ParameterLayout> layout_;
  DeviceView<T, 1> data_N_;
  Range range_;
};

}  // namespace pleat::tensor
