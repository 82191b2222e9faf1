// SPDX-License-Identifier: Apache-2.0
#pragma once

/// \file
/// \brief Values one after the other as bytes, to go from one rank of a program to another.

#include <cstdint>
#include <cstring>
#include <string>
#include <type_traits>
#include <vector>

#include "pleat/base/error.hpp"

namespace pleat::io {

class ByteWriter {
 public:
  template <class T>
    requires std::is_arithmetic_v<T>
  void put(const T& value) {
    bytes_.append(reinterpret_cast<const char*>(&value), sizeof(T));
  }
  void put(const std::string& text) {
    put(static_cast<std::uint64_t>(text.size()));
    bytes_ += text;
  }
  template <class T>
  void put(const std::vector<T>& values) {
    put(static_cast<std::uint64_t>(values.size()));
    for (const T value : values) put(value);
  }
  std::string take() { return std::move(bytes_); }

 private:
  std::string bytes_;
};

/// \brief Takes the values out in the order in which they were put in.
class ByteReader {
 public:
  /// \param bytes  must outlive the reader
  explicit ByteReader(const std::string& bytes) : bytes_(bytes) {}
  template <class T>
    requires std::is_arithmetic_v<T>
  void get(T& value) {
    std::memcpy(&value, bytes_.data() + advance(sizeof(T)), sizeof(T));
  }
  void get(std::string& text) {
    const auto size = get<std::uint64_t>();
    text = bytes_.substr(advance(size), size);
  }
  template <class T>
  void get(std::vector<T>& values) {
    values.clear();
    for (auto left = get<std::uint64_t>(); left > 0; --left) values.push_back(get<T>());
  }
  template <class T>
  T get() {
    T value{};
    get(value);
    return value;
  }

 private:
  std::size_t advance(std::size_t size) {
    PLEAT_ASSERT(size <= bytes_.size() - next_, "the bytes end at {}", bytes_.size());
    next_ += size;
    return next_ - size;
  }

  const std::string& bytes_;
  std::size_t next_ = 0;
};

}  // namespace pleat::io
