// SPDX-License-Identifier: Apache-2.0
#pragma once

/// \file
/// \brief HDF5 files as move-only objects whose every call is checked.
///
/// A failure to read is an InputError (PL0301, PL0302), a failure to write an IoError
/// (PL0303); both name the file, the object and the innermost message of HDF5, whose own
/// printing is switched off. The header <hdf5.h> stays out of sight.

#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <mpi.h>

#include "pleat/io/element_type.hpp"
#include "pleat/tensor/parameter_layout.hpp"

namespace pleat::io {

/// \brief Keeps other threads out of HDF5 while it lives.
///
/// The library's tables are global to the process and, as it is commonly built, guarded by
/// nothing. A checkpoint in the background therefore takes turns with whoever reads tokens or
/// writes gradients; nothing that waits for another rank's checkpoint may be done under it.
class Hdf5Lock {
 public:
  Hdf5Lock();

 private:
  std::lock_guard<std::mutex> guard_;
};

/// \brief Owns one identifier of HDF5 and closes it with the function of its kind.
class Hdf5Handle {
 public:
  using Closer = int (*)(std::int64_t);
  Hdf5Handle() = default;
  Hdf5Handle(std::int64_t id, Closer closer) : id_(id), closer_(closer) {}
  ~Hdf5Handle() { reset(); }
  Hdf5Handle(Hdf5Handle&& other) noexcept;
  Hdf5Handle& operator=(Hdf5Handle&& other) noexcept;
  std::int64_t id() const { return id_; }
  /// \brief Closes now. \return false when HDF5 reports a failure
  bool reset();

 private:
  std::int64_t id_ = -1;
  Closer closer_ = nullptr;
};

/// \brief What groups and data sets have in common: a place and attributes by name.
class Hdf5Object {
 public:
  /// \brief "FILE: /path/of/object", for messages.
  std::string place() const { return file_ + ": " + path_; }
  const std::string& path() const { return path_; }

  std::vector<std::string> attribute_names() const;  ///< sorted
  bool has_attribute(const std::string& name) const;
  /// \throws InputError PL0302 absent or of another type
  std::string string_attribute(const std::string& name) const;
  std::int64_t int64_attribute(const std::string& name) const;
  double double_attribute(const std::string& name) const;
  std::vector<std::int64_t> int64_array_attribute(const std::string& name) const;
  std::vector<double> double_array_attribute(const std::string& name) const;
  /// \brief Any of the above as text; arrays with a blank between the numbers.
  /// \param exact  floating-point numbers with 17 digits, else as short as they can be
  std::string attribute_text(const std::string& name, bool exact = false) const;

  /// Replace what was there; collective over the file's communicator. \throws IoError
  /// PL0303
  void set_attribute(const std::string& name, std::string_view value);
  void set_attribute(const std::string& name, const char* value);
  void set_attribute(const std::string& name, std::int64_t value);
  void set_attribute(const std::string& name, double value);
  void set_attribute(const std::string& name, std::span<const std::int64_t> values);
  void set_attribute(const std::string& name, std::span<const double> values);
  /// \brief Puts a text of the same length in the place of the one that is there: the file
  /// neither grows nor moves anything. \throws IoError PL0303
  void overwrite_attribute(const std::string& name, std::string_view value);

 protected:
  Hdf5Object() = default;
  Hdf5Object(Hdf5Handle handle, std::string file, std::string path)
      : handle_(std::move(handle)), file_(std::move(file)), path_(std::move(path)) {}
  void write_attribute(const std::string& name, std::int64_t type, std::int64_t space,
                       const void* value);

  Hdf5Handle handle_;
  std::string file_;
  std::string path_;
};

enum class Hdf5Kind { kInteger, kFloat, kOther };

/// \brief An array in a file. Boxes are given by the offset of their first element and
/// their extents, both with one entry per dimension; memory is row-major.
class Hdf5Dataset : public Hdf5Object {
 public:
  const tensor::Shape& shape() const { return shape_; }
  std::int64_t count() const { return tensor::element_count(shape_); }
  Hdf5Kind kind() const { return kind_; }
  /// \brief e.g. "int32", "float64", "bfloat16"; for messages and listings.
  std::string type_text() const;
  /// \brief The floating-point type of the file. \throws InputError PL0302 not one of the
  /// four
  ElementType element_type() const;
  /// \brief Where its elements lie in the file, one after the other; nothing where they are
  /// chunked, compressed, in another file or not there yet.
  std::optional<std::int64_t> file_offset() const;

  /// \brief Reads a box, converted from whatever integer or floating-point type the file
  /// has. \tparam T  std::int32_t, std::int64_t, std::uint8_t (integer data sets, also
  /// booleans);
  ///   float, double (floating-point data sets)
  /// \throws InputError PL0302 unreadable or of another kind; PL0304 a value does not fit
  /// T
  template <class T>
  void read(const tensor::Shape& offset, const tensor::Shape& extent,
            std::span<T> values) const;
  /// \brief Reads everything.
  template <class T>
  std::vector<T> read_all() const;
  /// \brief Reads a box of a floating-point data set without any conversion.
  void read_raw(const tensor::Shape& offset, const tensor::Shape& extent,
                std::span<std::byte> bytes) const;

  /// \brief Writes a box; independent of the other ranks. \throws IoError PL0303
  /// \tparam T  std::int32_t, std::int64_t, float, double
  template <class T>
  void write(const tensor::Shape& offset, const tensor::Shape& extent,
             std::span<const T> values);
  void write_raw(const tensor::Shape& offset, const tensor::Shape& extent,
                 std::span<const std::byte> bytes);

 private:
  friend class Hdf5Group;
  Hdf5Dataset(Hdf5Handle handle, std::string file, std::string path);
  void transfer_in(std::int64_t memory_type, const tensor::Shape& offset,
                   const tensor::Shape& extent, void* values, bool check_range) const;
  void transfer_out(std::int64_t memory_type, const tensor::Shape& offset,
                    const tensor::Shape& extent, const void* values);

  tensor::Shape shape_;
  Hdf5Kind kind_ = Hdf5Kind::kOther;
};

/// \brief The type of a new data set.
enum class Hdf5Type { kF64, kF32, kF16, kBf16, kInt32, kInt64, kUint16, kUint8 };
Hdf5Type hdf5_type(ElementType type);

class Hdf5Group : public Hdf5Object {
 public:
  bool has(const std::string& path) const;
  std::vector<std::string> children() const;  ///< sorted names
  bool is_group(const std::string& name) const;
  Hdf5Group group(const std::string& path) const;
  Hdf5Dataset dataset(const std::string& path) const;
  /// Creation is collective; missing parent groups are made. \throws IoError PL0303
  Hdf5Group create_group(const std::string& path);
  Hdf5Dataset create_dataset(const std::string& path, const tensor::Shape& shape,
                             Hdf5Type type);
  /// \brief Creates and writes in full; for one rank.
  template <class T>
  Hdf5Dataset write_dataset(const std::string& path, const tensor::Shape& shape,
                            std::span<const T> values);

 private:
  void create_parents(const std::string& path);

  friend class Hdf5File;
  using Hdf5Object::Hdf5Object;
};

/// \brief An open file; objects taken from it must not outlive it.
class Hdf5File {
 public:
  /// \brief Opens for reading, independently of other ranks. \throws InputError PL0301
  static Hdf5File open_read(const std::string& path);
  /// \brief Creates or overwrites, through MPI-IO, collectively over the communicator
  /// (MPI_COMM_SELF for one rank), in the 1.10 format, whose metadata carry checksums.
  /// \throws IoError PL0303
  static Hdf5File create(const std::string& path, MPI_Comm comm);
  /// \brief The same for this rank alone, without MPI-IO.
  /// \param alignment  data sets of so many bytes or more begin on a multiple of it
  static Hdf5File create_serial(const std::string& path, std::int64_t alignment);
  /// \brief Opens such a file again to change attributes. \throws IoError PL0303
  static Hdf5File open_write(const std::string& path);

  Hdf5Group root() const;
  const std::string& path() const { return path_; }
  /// \brief Writes everything out and closes; collective. \throws IoError PL0303
  void close();

 private:
  Hdf5File(Hdf5Handle handle, std::string path)
      : handle_(std::move(handle)), path_(std::move(path)) {}

  Hdf5Handle handle_;
  std::string path_;
};

}  // namespace pleat::io
