// SPDX-License-Identifier: Apache-2.0
#pragma once

/// \file
/// \brief The floating-point types in which tensors lie in files.

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string_view>

namespace pleat::io {

/// \brief IEEE 754 binary64, binary32, binary16, and bfloat16 (1 sign, 8 exponent, 7
/// mantissa bits); little-endian in files.
enum class ElementType { kF64, kF32, kF16, kBf16 };

std::size_t element_size(ElementType type);

/// \brief "F64", "F32", "F16" or "BF16": the spelling of the safetensors format.
std::string_view element_name(ElementType type);
/// \brief Reads any case of element_name's spelling; empty where it is none of them.
std::optional<ElementType> parse_element_type(std::string_view name);

/// \brief The file type that holds a T without change; T is float or double.
template <class T>
inline constexpr ElementType kElementTypeOf = sizeof(T) == sizeof(double)
                                                  ? ElementType::kF64
                                                  : ElementType::kF32;

/// \brief Decodes elements as they lie in a file. Exact but for F64 read to float, which
/// is rounded to nearest even. \tparam T  float or double \param bytes  values.size()
/// elements of the type
template <class T>
void decode_elements(ElementType type, std::span<const std::byte> bytes,
                     std::span<T> values);

/// \brief Encodes values as elements of a file, rounded once, to nearest even.
/// \tparam T  float or double
/// \return how many finite values became infinite because the type's range is too small
template <class T>
std::int64_t encode_elements(ElementType type, std::span<const T> values,
                             std::span<std::byte> bytes);

}  // namespace pleat::io
