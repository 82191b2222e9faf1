// SPDX-License-Identifier: Apache-2.0
#include <cstdio>
#include <vector>

#include "pleat/base/error.hpp"
#include "pleat/comm/check_mpi.hpp"
#include "pleat/io/checkpoint.hpp"
#include "pleat/io/checksum.hpp"
#include "pleat/io/durable_file.hpp"

namespace pleat::io {

const char* group_path(TensorGroup group) {
  switch (group) {
    case TensorGroup::kParameters:
      return "/parameters";
    case TensorGroup::kFirstMoment:
      return "/optimizer/first_moment";
    default:
      return "/optimizer/second_moment";
  }
}

std::string tensor_path(TensorGroup group, const std::string& name) {
  return fmt::format("{}/{}", group_path(group), name);
}

CheckpointWriter::CheckpointWriter(std::string path, const CheckpointInfo& info,
                                   MPI_Comm comm)
    : path_(std::move(path)), temporary_(path_ + ".tmp"), comm_(comm) {
  PLEAT_CHECK_MPI(MPI_Comm_rank(comm_, &rank_));
  file_ = Hdf5File::create(temporary_, comm_);
  Hdf5Group root = file_->root();
  write_checkpoint_info(root, info);
}

CheckpointWriter::~CheckpointWriter() {
  if (!file_) return;  // committed
  file_.reset();
  if (rank_ == 0) std::remove(temporary_.c_str());
}

void CheckpointWriter::declare(TensorGroup group, const tensor::ParameterSpec& parameter,
                               ElementType type) {
  const std::string path = tensor_path(group, parameter.name);
  file_->root().create_dataset(path, parameter.global_shape, hdf5_type(type));
  const bool added = entries_.emplace(path, Entry{type, parameter.global_shape}).second;
  PLEAT_ASSERT(added, "'{}' is declared twice", path);
}

CheckpointWriter::Entry& CheckpointWriter::entry(const std::string& path) {
  const auto found = entries_.find(path);
  PLEAT_ASSERT(found != entries_.end(), "'{}' was not declared", path);
  return found->second;
}

template <class T>
void CheckpointWriter::write(TensorGroup group, const tensor::ParameterSpec& parameter,
                             std::span<const T> local) {
  PLEAT_ASSERT(entry(tensor_path(group, parameter.name)).type == kElementTypeOf<T>,
               "'{}' was declared with another type", parameter.name);
  write_raw(group, parameter, std::as_bytes(local));
}

void CheckpointWriter::write_raw(TensorGroup group,
                                 const tensor::ParameterSpec& parameter,
                                 std::span<const std::byte> local) {
  const std::string path = tensor_path(group, parameter.name);
  Entry& target = entry(path);
  Hdf5Dataset dataset = file_->root().dataset(path);
  dataset.write_raw(parameter.local_offset, parameter.local_shape, local);
  target.checksum += box_checksum(target.type, local, target.shape,
                                  parameter.local_offset, parameter.local_shape);
}

void CheckpointWriter::write_checksums() {
  std::vector<std::uint64_t> sums;
  for (const auto& [path, entry] : entries_) sums.push_back(entry.checksum);
  PLEAT_CHECK_MPI(MPI_Allreduce(MPI_IN_PLACE, sums.data(), static_cast<int>(sums.size()),
                                MPI_UINT64_T, MPI_SUM, comm_));
  Hdf5Group root = file_->root();
  std::string table;
  std::size_t i = 0;
  for (const auto& [path, entry] : entries_) {
    root.dataset(path).set_attribute("checksum", checksum_text(sums[i]));
    table += checkpoint_table_line(path, entry.type, entry.shape, sums[i++]);
  }
  root.set_attribute("metadata_checksum", checksum_text(metadata_checksum(root, table)));
}

void CheckpointWriter::commit() {
  write_checksums();
  file_->close();
  if (rank_ == 0) rename_durably(temporary_, path_);
  PLEAT_CHECK_MPI(MPI_Barrier(comm_));
  file_.reset();
}

template void CheckpointWriter::write(TensorGroup, const tensor::ParameterSpec&,
                                      std::span<const float>);
template void CheckpointWriter::write(TensorGroup, const tensor::ParameterSpec&,
                                      std::span<const double>);

}  // namespace pleat::io
