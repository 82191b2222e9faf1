// SPDX-License-Identifier: Apache-2.0
#pragma once

/// \file
/// \brief Checkpoints: one HDF5 file each, independent of the mapping that wrote it.
///
/// docs/checkpoints.md describes the format. Every damage is an InputError that names the
/// file and the object; the file system's failures are IoErrors (PL0303, PL0310).

#include <cstddef>
#include <cstdint>
#include <exception>
#include <map>
#include <memory>
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
#include "pleat/tensor/parameter_layout.hpp"

namespace pleat::io {

/// \brief The three tensors that a checkpoint can hold for each parameter.
enum class TensorGroup { kParameters, kFirstMoment, kSecondMoment };
/// \brief "/parameters", "/optimizer/first_moment" or "/optimizer/second_moment".
const char* group_path(TensorGroup group);
/// \brief "/parameters/model.norm.weight".
std::string tensor_path(TensorGroup group, const std::string& name);

/// \brief Whether MPI-IO gathers the ranks' parts on a few of them before it writes.
enum class CollectiveBuffering { kAutomatic, kOn, kOff };

/// \brief What a run asks of MPI-IO and the file system; 0 leaves the choice to them.
struct CheckpointHints {
  CollectiveBuffering collective_buffering = CollectiveBuffering::kAutomatic;
  std::int64_t aggregators = 0;   ///< ranks that touch the file (cb_nodes)
  std::int64_t buffer_bytes = 0;  ///< of an aggregator (cb_buffer_size)
  std::int64_t alignment = 4096;  ///< bytes; data sets of that size or more begin on a multiple
  std::int64_t stripes = 0;       ///< of the file on a parallel file system (striping_factor)
  /// Bytes that a rank moves at a time. They bound what detach() waits for, and what conversion
  /// needs of memory besides the tensors: three times as many.
  std::int64_t round_bytes = 16 << 20;
};

/// \brief A data set that a checkpoint will have.
struct TensorDeclaration {
  TensorGroup group = TensorGroup::kParameters;
  std::string name;
  tensor::Shape shape;  ///< global
  ElementType type;
};

/// \brief A data set of a checkpoint's file.
struct StoredTensor {
  ElementType type;
  tensor::Shape shape;
  std::uint64_t checksum = 0;
  /// Its first byte in the file; -1 where HDF5 keeps it in parts or compressed, which no
  /// program of Pleat does.
  std::int64_t offset = -1;
  std::int64_t bytes() const;
};
/// \brief By path, as tensor_path() makes it.
using StoredTensors = std::map<std::string, StoredTensor>;

/// \brief Writes one checkpoint into `PATH.tmp`, which seal() turns into PATH.
///
/// The first rank makes the file with HDF5: attributes and contiguous data sets, whose
/// place in the file HDF5 allots. The elements bypass HDF5 (docs/adr/0014): write() takes all
/// tensors of all ranks to the file in a few collective calls of MPI-IO, write_alone() this
/// rank's with plain writes, on a thread beside the steps. Every element must be added by
/// exactly one rank. Constructor, destructor, write(), agree() and commit() are collective
/// over the communicator and fail alike on all ranks, with the message of the first rank that
/// failed.
class CheckpointWriter {
 public:
  /// \param tensors  of all ranks; only the first rank's are used
  /// \throws IoError PL0303, PL0310 (no space)
  CheckpointWriter(std::string path, const CheckpointInfo& info,
                   const std::vector<TensorDeclaration>& tensors, MPI_Comm comm,
                   const CheckpointHints& hints = {});
  /// \brief Without commit() or seal() the temporary file is removed.
  ~CheckpointWriter();
  CheckpointWriter(const CheckpointWriter&) = delete;
  CheckpointWriter& operator=(const CheckpointWriter&) = delete;

  /// \brief Notes elements to be written; not collective.
  /// \param in_box  their range in the row-major order of this rank's box of the parameter
  /// \param bytes  of the declared type; must stay as they are until they are written or
  ///   detach() was called
  void add(TensorGroup group, const tensor::ParameterSpec& parameter,
           const tensor::Range& in_box, std::span<const std::byte> bytes);
  /// \brief Writes all that was added since the last call. \throws IoError PL0303
  void write();
  /// \brief Prepares write_alone() for what was added. Collective.
  void begin_alone();
  /// \brief The same as write() on another thread, which must end before agree() and the
  /// destructor: calls neither MPI nor HDF5. Where one machine has all ranks it waits for theirs,
  /// to gather short runs; without begin_alone() each rank writes its own.
  /// \throws IoError PL0303 on this rank alone
  void write_alone();
  /// \brief From another thread than the one that writes, at any time: copies what is not yet
  /// taken from the memory of add(), which may change from then on. Not collective.
  void detach();

  /// \brief After write_alone() on all ranks: forms the checksums.
  /// \param failure  what write_alone() threw on this rank, or nothing; all ranks throw it
  void agree(const std::exception_ptr& failure);
  /// \brief After agree(), on the first rank alone: checksums into the file, fsync, rename,
  /// fsync of the folder. Calls no MPI, so it may run on another thread. \throws IoError
  void seal();
  /// \brief After write(): agree() and seal() on all ranks. \throws IoError
  void commit();

 private:
  struct State;
  std::unique_ptr<State> state_;
};

/// \brief Reads a checkpoint collectively, each rank the elements that it holds, and verifies
/// all of it on the way. Constructor, destructor and read() are collective; they fail alike
/// on all ranks.
class CheckpointLoader {
 public:
  /// \brief The first rank reads attributes and table and hands them to the others.
  /// \throws InputError as CheckpointReader
  CheckpointLoader(const std::string& path, MPI_Comm comm, const CheckpointHints& hints = {});
  ~CheckpointLoader();
  CheckpointLoader(const CheckpointLoader&) = delete;
  CheckpointLoader& operator=(const CheckpointLoader&) = delete;

  const CheckpointInfo& info() const;
  /// \brief Checks that a group holds exactly the tensors of the whole model's layout.
  /// \throws InputError PL0309 lists the first differences
  void require_tensors(TensorGroup group, const tensor::ParameterLayout& whole) const;
  /// \throws InputError PL0311 without optimizer state
  void require_optimizer_state() const;

  /// \brief Notes where read() shall put elements, converted from the stored type; not
  /// collective. \tparam T  float or double
  /// \param counted  whether they make up the tensor's checksum: over all ranks, the counted
  ///   elements must be each element of the tensor exactly once; others may repeat them
  template <class T>
  void add(TensorGroup group, const tensor::ParameterSpec& parameter,
           const tensor::Range& in_box, std::span<T> elements, bool counted);
  /// \brief Reads what was added; on return every added tensor agreed with its checksum.
  /// \throws InputError PL0302, PL0308 (damaged)
  void read();

 private:
  struct State;
  std::unique_ptr<State> state_;
};

/// \brief Reads checkpoints; every rank for itself.
class CheckpointReader {
 public:
  /// \brief Opens, checks the format version and the checksum of all attributes and of
  /// the table of tensors. \throws InputError PL0301, PL0302, PL0305 to PL0307
  /// \throws IoError PL0316
  explicit CheckpointReader(const std::string& path);

  const std::string& path() const { return file_.path(); }
  const CheckpointInfo& info() const { return info_; }
  bool has(TensorGroup group) const;
  /// \brief Sorted.
  std::vector<std::string> names(TensorGroup group) const;
  bool contains(TensorGroup group, const std::string& name) const;
  ElementType stored_type(TensorGroup group, const std::string& name) const;
  const tensor::Shape& shape(TensorGroup group, const std::string& name) const;
  /// \brief All of them by their paths.
  const StoredTensors& tensors() const { return tensors_; }
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
  const StoredTensor& entry(TensorGroup group, const std::string& name) const;

  void read_table(TensorGroup group);
  void check_metadata() const;
  void check_places() const;

  Hdf5File file_;
  Hdf5Group root_;
  CheckpointInfo info_;
  StoredTensors tensors_;
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

/// \brief Refuses a file whose name says another step than its content, such as a copy under
/// another name; names that are not those of checkpoint_name() say none.
/// \throws InputError PL0315
void require_step_of_name(const std::string& path, std::int64_t step);

/// \brief Reads the weights alone, converted from any stored type (model.init).
template <class T>
CheckpointInfo load_parameters(const std::string& path,
                               const tensor::ParameterLayout& whole,
                               const tensor::FlatTensors<T>& weights);

/// \brief The paths of a folder's checkpoints in the order in which a run tries them: the one
/// that LATEST names, older ones, newer ones; newest first. None where there is no folder. Where
/// LATEST is of no use a warning says why, and all come newest first.
std::vector<std::string> resume_candidates(const std::string& folder, Log& log);
/// \brief A warning for each checkpoint of a later step than the one that LATEST names: a kill
/// came between the two, or somebody has edited LATEST or copied files.
void warn_of_newer_checkpoints(const std::string& folder, Log& log);

/// \brief The first of the candidates that verify_all() finds undamaged and whose name says its
/// step, for programs that
/// read by themselves; a warning for each that is passed over. \return nothing where there
/// is no candidate \throws InputError PL0312 all are damaged
std::optional<std::string> find_resume_checkpoint(const std::string& folder, Log& log);

/// \brief The folder of checkpoints that a path means: of a run, or the path itself. Empty where
/// neither holds a checkpoint.
std::string find_checkpoint_folder(const std::string& path);
/// \brief The checkpoint from which a run in that folder would go on, unopened. \return as
/// find_checkpoint_folder()
std::string newest_checkpoint(const std::string& path);

/// \brief Points FOLDER/LATEST to a checkpoint of the folder, durably; a folder of that name is
/// set aside. Call on one rank.
/// \throws IoError PL0310
void move_latest(const std::string& folder, const std::string& name);

/// \brief Lets LATEST name the checkpoint from which a run goes on, where it does not yet, so
/// that newer ones come last. Call on one rank. \throws IoError PL0310
void let_latest_name(const std::string& path);
/// \brief Renames the checkpoints of later steps to `step_N.h5.old-K`, which no run takes,
/// newest first. Call on one rank. \throws IoError PL0310
void set_newer_checkpoints_aside(const std::string& folder, std::int64_t step, Log& log);

/// \brief Which checkpoints of a folder stay.
struct Retention {
  std::int64_t newest = 0;   ///< so many regular ones, and what lies between; 0: all
  std::int64_t regular = 0;  ///< divides the steps of regular ones; 0: all are regular
  std::int64_t every = 0;    ///< those of steps that this divides, too; 0: none of them
};

/// \brief Removes the other checkpoints, never the one that LATEST names, and temporary files
/// that a kill left behind. Later ones than LATEST names were passed over: they stay and do not
/// count. Call on one rank, while none is being written.
/// \throws IoError PL0310 one cannot be removed; all that can are
void prune_checkpoints(const std::string& folder, const Retention& retention);

}  // namespace pleat::io
