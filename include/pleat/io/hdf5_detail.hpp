// SPDX-License-Identifier: Apache-2.0
#pragma once

/// \file
/// \brief Shared by the sources of hdf5.hpp; not for others.

#include <cstdint>
#include <string>
#include <type_traits>

#include "pleat/io/hdf5.hpp"

namespace pleat::io::detail {

/// \brief The innermost message of HDF5's error stack, which is then cleared.
std::string last_hdf5_error();
/// \brief Throws PL0302. \param reason  in the words of HDF5
[[noreturn]] void fail_read(const std::string& place, const char* what,
                            const std::string& reason);
/// \brief Returns the result of a call, or throws PL0302 / PL0303 where it is negative.
std::int64_t check_read(std::int64_t result, const std::string& place, const char* what);
std::int64_t check_write(std::int64_t result, const std::string& place, const char* what);

Hdf5Handle copy_type(std::int64_t type);
/// \brief The type of a data set in a file.
Hdf5Handle file_type(Hdf5Type type);
Hdf5Handle make_space(const tensor::Shape& shape);
/// \brief The extents of an open data space; HDF5's failures give an InputError.
tensor::Shape space_shape(std::int64_t space, const std::string& place);

template <class T>
constexpr Hdf5Type type_of() {
  if constexpr (std::is_same_v<T, double>) return Hdf5Type::kF64;
  if constexpr (std::is_same_v<T, float>) return Hdf5Type::kF32;
  if constexpr (std::is_same_v<T, std::int64_t>) return Hdf5Type::kInt64;
  if constexpr (std::is_same_v<T, std::int32_t>) return Hdf5Type::kInt32;
  if constexpr (std::is_same_v<T, std::uint16_t>) return Hdf5Type::kUint16;
  return Hdf5Type::kUint8;
}

}  // namespace pleat::io::detail
