// SPDX-License-Identifier: Apache-2.0
#pragma once

/// \file
/// \brief What readers and writers of checkpoints share: the table of data sets.

#include <span>
#include <string>

#include "pleat/io/checkpoint.hpp"

namespace pleat::io {

inline constexpr TensorGroup kTensorGroups[] = {
    TensorGroup::kParameters, TensorGroup::kFirstMoment, TensorGroup::kSecondMoment};

/// \brief The text that `metadata_checksum` covers, line by line.
std::string table_text(const StoredTensors& tensors);

/// \brief To be sent to another rank.
std::string pack_tensors(const StoredTensors& tensors);
StoredTensors unpack_tensors(const std::string& bytes);

/// \brief The names of the tensors of a group, sorted.
std::vector<std::string> names_of(const StoredTensors& tensors, TensorGroup group);

/// \throws InputError PL0309 lists the first differences
void require_same_tensors(const std::string& file, const StoredTensors& tensors,
                          TensorGroup group, const tensor::ParameterLayout& layout);

/// \throws InputError PL0308
void require_checksum(std::uint64_t found, std::uint64_t stored, const std::string& place);

/// \throws InputError PL0311
void require_moments(const std::string& file, bool present);

}  // namespace pleat::io
