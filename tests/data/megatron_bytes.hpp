// SPDX-License-Identifier: Apache-2.0
#pragma once

/// \file
/// \brief Megatron pairs put together byte by byte, without the code under test.

#include <cstdint>
#include <cstring>
#include <string>
#include <vector>

namespace pleat::test {

template <class T>
void put(std::string& bytes, T value) {
  char raw[sizeof(T)];
  std::memcpy(raw, &value, sizeof(T));
  bytes.append(raw, sizeof(T));
}

struct MegatronIndexFields {
  std::uint64_t version = 1;
  std::uint8_t type = 4;
  std::vector<std::int32_t> sizes;
  std::vector<std::int64_t> pointers;
  std::vector<std::int64_t> documents;
};

inline std::string index_bytes(const MegatronIndexFields& fields) {
  std::string bytes("MMIDIDX\0\0", 9);
  put(bytes, fields.version);
  put(bytes, fields.type);
  put(bytes, static_cast<std::uint64_t>(fields.sizes.size()));
  put(bytes, static_cast<std::uint64_t>(fields.documents.size()));
  for (const std::int32_t size : fields.sizes) put(bytes, size);
  for (const std::int64_t pointer : fields.pointers) put(bytes, pointer);
  for (const std::int64_t document : fields.documents) put(bytes, document);
  return bytes;
}

}  // namespace pleat::test
