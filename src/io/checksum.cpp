// SPDX-License-Identifier: Apache-2.0
#include "pleat/io/checksum.hpp"

#include <cstring>

#include "pleat/base/error.hpp"

namespace pleat::io {

namespace {

template <class Bits>
std::uint64_t sum_terms(std::span<const std::byte> bytes, std::uint64_t first_index) {
  std::uint64_t sum = 0;
  const std::size_t count = bytes.size() / sizeof(Bits);
  for (std::size_t i = 0; i < count; ++i) {
    Bits bits;
    std::memcpy(&bits, bytes.data() + i * sizeof(Bits), sizeof(Bits));
    sum += checksum_term(first_index + i, bits);
  }
  return sum;
}

}  // namespace

std::uint64_t content_checksum(ElementType type, std::span<const std::byte> bytes,
                               std::uint64_t first_index) {
  switch (element_size(type)) {
    case 8:
      return sum_terms<std::uint64_t>(bytes, first_index);
    case 4:
      return sum_terms<std::uint32_t>(bytes, first_index);
    default:
      return sum_terms<std::uint16_t>(bytes, first_index);
  }
}

template <class T>
std::uint64_t content_checksum(std::span<const T> values, std::uint64_t first_index) {
  return content_checksum(kElementTypeOf<T>, std::as_bytes(values), first_index);
}

std::uint64_t box_checksum(ElementType type, std::span<const std::byte> bytes,
                           const tensor::Shape& global_shape,
                           const tensor::Shape& box_offset,
                           const tensor::Shape& box_shape) {
  const std::size_t rank = global_shape.size();
  PLEAT_ASSERT(box_offset.size() == rank && box_shape.size() == rank,
               "box and shape differ in rank");
  const std::int64_t count = tensor::element_count(box_shape);
  if (count == 0) return 0;
  const std::int64_t run = rank == 0 ? 1 : box_shape.back();
  const std::size_t run_bytes = static_cast<std::size_t>(run) * element_size(type);
  std::uint64_t sum = 0;
  for (std::int64_t row = 0; row < count / run; ++row) {
    // The row's place in the box, slowest dimension first, gives its global index.
    std::int64_t rest = row;
    std::int64_t stride = 1;
    std::int64_t index = 0;
    for (std::size_t dim = rank; dim-- > 0;) {
      const bool last = dim + 1 == rank;
      const std::int64_t position = last ? 0 : rest % box_shape[dim];
      if (!last) rest /= box_shape[dim];
      index += (box_offset[dim] + position) * stride;
      stride *= global_shape[dim];
    }
    sum += content_checksum(
        type, bytes.subspan(static_cast<std::size_t>(row) * run_bytes, run_bytes),
        static_cast<std::uint64_t>(index));
  }
  return sum;
}

template std::uint64_t content_checksum(std::span<const float>, std::uint64_t);
template std::uint64_t content_checksum(std::span<const double>, std::uint64_t);

}  // namespace pleat::io
