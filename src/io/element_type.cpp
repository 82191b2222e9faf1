// SPDX-License-Identifier: Apache-2.0
#include "pleat/io/element_type.hpp"

#include <array>
#include <bit>
#include <cmath>
#include <cstring>
#include <string>

#include "pleat/base/error.hpp"

namespace pleat::io {

namespace {

static_assert(std::endian::native == std::endian::little,
              "elements are copied between files and memory as they are");

struct TypeRow {
  ElementType type;
  std::size_t size;
  std::string_view name;
};
constexpr std::array<TypeRow, 4> kTypes{{{ElementType::kF64, 8, "F64"},
                                         {ElementType::kF32, 4, "F32"},
                                         {ElementType::kF16, 2, "F16"},
                                         {ElementType::kBf16, 2, "BF16"}}};

const TypeRow& row(ElementType type) { return kTypes[static_cast<std::size_t>(type)]; }

template <class Bits, class T>
void store(std::span<std::byte> bytes, std::size_t i, T value) {
  const Bits bits = std::bit_cast<Bits>(value);
  std::memcpy(bytes.data() + i * sizeof(Bits), &bits, sizeof(Bits));
}

template <class T>
T load(std::span<const std::byte> bytes, std::size_t i) {
  T value;
  std::memcpy(&value, bytes.data() + i * sizeof(T), sizeof(T));
  return value;
}

/// A format of 16 bits, described by its exponent's width.
struct Narrow {
  int exponent_bits;
  int mantissa_bits() const { return 15 - exponent_bits; }
  int bias() const { return (1 << (exponent_bits - 1)) - 1; }
  std::uint32_t infinity() const {
    return ((1U << exponent_bits) - 1U) << mantissa_bits();
  }
};
constexpr Narrow kHalf{5};
constexpr Narrow kBrain{8};

/// Rounds the significand's integer `value` after `shift` bits, ties to even.
std::uint64_t round_shift(std::uint64_t value, int shift) {
  if (shift > 63) return 0;
  const std::uint64_t kept = value >> shift;
  const std::uint64_t rest = value & ((std::uint64_t{1} << shift) - 1);
  const std::uint64_t half = std::uint64_t{1} << (shift - 1);
  return kept + (rest > half || (rest == half && (kept & 1U) != 0) ? 1 : 0);
}

/// Rounds from double at once: going through float would round twice.
std::uint16_t encode_narrow(Narrow format, double value) {
  const auto bits = std::bit_cast<std::uint64_t>(value);
  const std::uint32_t sign = static_cast<std::uint32_t>(bits >> 63) << 15;
  const int exponent = static_cast<int>((bits >> 52) & 0x7ffU);
  const std::uint64_t fraction = bits & ((std::uint64_t{1} << 52) - 1);
  const int mantissa_bits = format.mantissa_bits();
  if (exponent == 0x7ff) {
    const std::uint32_t quiet = fraction != 0 ? 1U << (mantissa_bits - 1) : 0U;
    return static_cast<std::uint16_t>(sign | format.infinity() | quiet);
  }
  if (exponent == 0) return static_cast<std::uint16_t>(sign);  // far below both formats
  const std::uint64_t significand = fraction | (std::uint64_t{1} << 52);
  const int target = exponent - 1023 + format.bias();
  const int shift = 52 - mantissa_bits + (target > 0 ? 0 : 1 - target);
  std::uint64_t result = round_shift(significand, shift);
  // A carry out of the mantissa steps the exponent up, as it should.
  if (target > 0) result += static_cast<std::uint64_t>(target - 1) << mantissa_bits;
  if (result > format.infinity()) result = format.infinity();
  return static_cast<std::uint16_t>(sign | static_cast<std::uint32_t>(result));
}

double decode_half(std::uint16_t bits) {
  const int exponent = (bits >> 10) & 0x1f;
  const int mantissa = bits & 0x3ff;
  double value = 0.0;
  if (exponent == 0x1f) {
    value = mantissa == 0 ? HUGE_VAL : std::nan("");
  } else if (exponent == 0) {
    value = std::ldexp(mantissa, -24);
  } else {
    value = std::ldexp(mantissa + 1024, exponent - 25);
  }
  return (bits & 0x8000U) != 0 ? -value : value;
}

float decode_brain(std::uint16_t bits) {
  return std::bit_cast<float>(static_cast<std::uint32_t>(bits) << 16);
}

}  // namespace

std::size_t element_size(ElementType type) { return row(type).size; }

std::string_view element_name(ElementType type) { return row(type).name; }

std::optional<ElementType> parse_element_type(std::string_view name) {
  std::string upper(name);
  for (char& c : upper) {
    if (c >= 'a' && c <= 'z') c = static_cast<char>(c - 'a' + 'A');
  }
  for (const TypeRow& candidate : kTypes) {
    if (candidate.name == upper) return candidate.type;
  }
  return std::nullopt;
}

template <class T>
void decode_elements(ElementType type, std::span<const std::byte> bytes,
                     std::span<T> values) {
  PLEAT_ASSERT(bytes.size() == values.size() * element_size(type),
               "{} bytes do not hold {} elements", bytes.size(), values.size());
  for (std::size_t i = 0; i < values.size(); ++i) {
    switch (type) {
      case ElementType::kF64:
        values[i] = static_cast<T>(load<double>(bytes, i));
        break;
      case ElementType::kF32:
        values[i] = static_cast<T>(load<float>(bytes, i));
        break;
      case ElementType::kF16:
        values[i] = static_cast<T>(decode_half(load<std::uint16_t>(bytes, i)));
        break;
      case ElementType::kBf16:
        values[i] = static_cast<T>(decode_brain(load<std::uint16_t>(bytes, i)));
        break;
    }
  }
}

template <class T>
std::int64_t encode_elements(ElementType type, std::span<const T> values,
                             std::span<std::byte> bytes) {
  PLEAT_ASSERT(bytes.size() == values.size() * element_size(type),
               "{} bytes do not hold {} elements", bytes.size(), values.size());
  std::int64_t overflows = 0;
  for (std::size_t i = 0; i < values.size(); ++i) {
    const double value = values[i];
    bool infinite = false;
    if (type == ElementType::kF64) {
      store<std::uint64_t>(bytes, i, value);
    } else if (type == ElementType::kF32) {
      const auto narrowed = static_cast<float>(value);
      store<std::uint32_t>(bytes, i, narrowed);
      infinite = std::isinf(narrowed);
    } else {
      const Narrow format = type == ElementType::kF16 ? kHalf : kBrain;
      const std::uint16_t narrowed = encode_narrow(format, value);
      store<std::uint16_t>(bytes, i, narrowed);
      infinite = (narrowed & 0x7fffU) == format.infinity();
    }
    if (infinite && std::isfinite(value)) ++overflows;
  }
  return overflows;
}

template void decode_elements(ElementType, std::span<const std::byte>, std::span<float>);
template void decode_elements(ElementType, std::span<const std::byte>, std::span<double>);
template std::int64_t encode_elements(ElementType, std::span<const float>,
                                      std::span<std::byte>);
template std::int64_t encode_elements(ElementType, std::span<const double>,
                                      std::span<std::byte>);

}  // namespace pleat::io
