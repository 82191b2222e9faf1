// SPDX-License-Identifier: Apache-2.0
#pragma once

/// \file
/// \brief Checkpoints: one HDF5 file each, independent of the mapping that wrote it.
///
/// docs/checkpoints.md describes the format. Every damage is an InputError that names the
/// file and the object; the file system's failures are IoErrors (PL0303, PL0310).

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include <mpi.h>

#include "pleat/base/log.hpp"
#include "pleat/io/checkpoint_info.hpp"
#include "pleat/io/element_type.hpp"
#include "pleat/io/hdf5.hpp"
#include "pleat/tensor/flat_tensors.hpp"

namespace pleat::io {

/// \brief The three tensors that a checkpoint can hold for each parameter.
enum class TensorGroup { kParameters, kFirstMoment, kSecondMoment };
/// \brief "/parameters", "/optimizer/first_moment" or "/optimizer/second_moment".
const char* group_path(TensorGroup group);
/// \brief "/parameters/model.norm.weight".
std::string tensor_path(TensorGroup group, const std::string& name);

/// \brief Writes one checkpoint into `PATH.tmp`, which commit() turns into PATH.
///
/// Constructor, declare() and commit() are collective over the communicator; write() is
/// not. Every element must be written by exactly one rank.
class CheckpointWriter {
 public:
  /// \throws IoError PL0303
  CheckpointWriter(std::string path, const CheckpointInfo& info, MPI_Comm comm);
  /// \brief Without commit() the temporary file is removed.
  ~CheckpointWriter();
  CheckpointWriter(const CheckpointWriter&) = delete;
  CheckpointWriter& operator=(const CheckpointWriter&) = delete;

  /// \brief Makes the data set; the same sequence of calls on every rank.
  void declare(TensorGroup group, const tensor::ParameterSpec& parameter,
               ElementType type);
  /// \brief Writes this rank's box of a declared tensor of T's own type.
  template <class T>
  void write(TensorGroup group, const tensor::ParameterSpec& parameter,
             std::span<const T> local);
  /// \brief The same for elements of the declared type.
  void write_raw(TensorGroup group, const tensor::ParameterSpec& parameter,
                 std::span<const std::byte> local);
  /// \brief Checksums, flush, close, fsync, rename, fsync of the folder. \throws IoError
  void commit();

 private:
  struct Entry {
    ElementType type;
    tensor::Shape shape;
    std::uint64_t checksum = 0;  ///< of what this rank wrote
  };
  Entry& entry(const std::string& path);
  void write_checksums();

  std::string path_;
  std::string temporary_;
  MPI_Comm comm_;
  int rank_ = 0;
  std::optional<Hdf5File> file_;
  std::map<std::string, Entry> entries_;  ///< by path
};

/// \brief Reads checkpoints; every rank for itself.
class CheckpointReader {
 public:
  /// \brief Opens, checks the format version and the checksum of all attributes and of
  /// the table of tensors. \throws InputError PL0301, PL0302, PL0305 to PL0307
  explicit CheckpointReader(const std::string& path);

  const std::string& path() const { return file_.path(); }
  const CheckpointInfo& info() const { return info_; }
  bool has(TensorGroup group) const;
  /// \brief Sorted.
  std::vector<std::string> names(TensorGroup group) const;
  bool contains(TensorGroup group, const std::string& name) const;
  ElementType stored_type(TensorGroup group, const std::string& name) const;
  const tensor::Shape& shape(TensorGroup group, const std::string& name) const;
  std::uint64_t stored_checksum(TensorGroup group, const std::string& name) const;

  /// \brief Reads this rank's box and checks the whole data set against its checksum.
  /// \tparam T  float or double, converted from the stored type
  /// \throws InputError PL0302, PL0308 (damaged), PL0309 (absent or of another shape)
  template <class T>
  void read(TensorGroup group, const tensor::ParameterSpec& parameter,
            std::span<T> local) const;
  /// \brief All elements as they are stored, checked.
  std::vector<std::byte> read_raw(TensorGroup group, const std::string& name) const;
  /// \brief Checks one tensor, or all, without keeping them. \throws InputError PL0308
  void verify(TensorGroup group, const std::string& name) const;
  void verify_all() const;

 private:
  struct Entry {
    ElementType type;
    tensor::Shape shape;
    std::uint64_t checksum;
  };
  const Entry& entry(TensorGroup group, const std::string& name) const;

  void read_table(TensorGroup group);
  void check_metadata() const;
  void check_size() const;

  Hdf5File file_;
  Hdf5Group root_;
  CheckpointInfo info_;
  std::map<std::string, Entry> entries_;  ///< by path
};

/// \brief True for a file that ends in ".h5" or begins like an HDF5 file: damaged or not,
/// it is CheckpointReader that tells more.
bool is_checkpoint(const std::string& path);

/// \brief Checks that a group holds exactly the tensors of the layout.
/// \throws InputError PL0309 lists the first differences
void check_checkpoint_tensors(const CheckpointReader& reader, TensorGroup group,
                              const tensor::ParameterLayout& layout);

/// \brief "step_00000020.h5".
std::string checkpoint_name(std::int64_t step);

/// \brief Writes FOLDER/step_NNNNNNNN.h5, then moves FOLDER/LATEST; makes the folder. Each
/// rank writes the boxes of the parameters that its layout calls written. Collective.
/// \param whole  layout of the whole model, alike on all ranks
/// \return the path \throws IoError
template <class T>
std::string save_checkpoint(const std::string& folder, const CheckpointInfo& info,
                            const tensor::ParameterLayout& whole,
                            const tensor::FlatTensors<T>& weights,
                            const tensor::FlatTensors<T>& first_moment,
                            const tensor::FlatTensors<T>& second_moment, MPI_Comm comm);

/// \brief Reads this rank's boxes of weights and moments, for a run that continues.
/// \param whole  layout of the whole model
/// \throws InputError PL0309 a checkpoint of another model (the first differences are
///   listed), PL0311 without optimizer state
template <class T>
CheckpointInfo load_checkpoint(const std::string& path,
                               const tensor::ParameterLayout& whole,
                               const tensor::FlatTensors<T>& weights,
                               const tensor::FlatTensors<T>& first_moment,
                               const tensor::FlatTensors<T>& second_moment);

/// \brief Reads the weights alone, converted from any stored type (model.init).
template <class T>
CheckpointInfo load_parameters(const std::string& path,
                               const tensor::ParameterLayout& whole,
                               const tensor::FlatTensors<T>& weights);

/// \brief The newest undamaged checkpoint of a folder: the one that LATEST names, else
/// the newest; where that one is damaged, a warning and the one before it. \return
/// nothing where there is no folder or no checkpoint in it \throws InputError PL0312 all
/// are damaged
std::optional<std::string> find_resume_checkpoint(const std::string& folder, Log& log);

/// \brief Removes all but the newest `keep` checkpoints (0: keeps all), never the one
/// that LATEST names, and temporary files that a kill left behind. Call on one rank.
void prune_checkpoints(const std::string& folder, std::int64_t keep);

}  // namespace pleat::io
