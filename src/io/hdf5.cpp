// SPDX-License-Identifier: Apache-2.0
#include "pleat/io/hdf5.hpp"

#include <algorithm>
#include <cerrno>
#include <cstring>

#include <hdf5.h>
#include <sys/stat.h>

#include "pleat/base/error.hpp"
#include "pleat/io/hdf5_detail.hpp"

namespace pleat::io {

static_assert(std::is_same_v<hid_t, std::int64_t>,
              "identifiers are kept as 64-bit integers");

namespace detail {

std::string last_hdf5_error() {
  std::string text;
  const auto take_first = [](unsigned, const H5E_error2_t* error, void* out) -> herr_t {
    auto* target = static_cast<std::string*>(out);
    if (target->empty() && error->desc != nullptr) *target = error->desc;
    return 0;
  };
  H5Ewalk2(H5E_DEFAULT, H5E_WALK_UPWARD, take_first, &text);
  H5Eclear2(H5E_DEFAULT);
  return text.empty() ? "no further details" : text;
}

void fail_read(const std::string& place, const char* what, const std::string& reason) {
  PLEAT_FAIL(InputError, "PL0302",
             "{}: cannot read {} (HDF5: {})\nHINT: the file is damaged, truncated or of "
             "another kind; use another copy.",
             place, what, reason);
}

std::int64_t check_read(std::int64_t result, const std::string& place, const char* what) {
  if (result < 0) fail_read(place, what, last_hdf5_error());
  return result;
}

std::int64_t check_write(std::int64_t result, const std::string& place,
                         const char* what) {
  PLEAT_REQUIRE(
      result >= 0, IoError, "PL0303",
      "{}: cannot write {} (HDF5: {})\nHINT: check free space, quota and permissions "
      "of the folder.",
      place, what, last_hdf5_error());
  return result;
}

Hdf5Handle copy_type(std::int64_t type) { return {H5Tcopy(type), H5Tclose}; }

Hdf5Handle file_type(Hdf5Type type) {
  switch (type) {
    case Hdf5Type::kF64:
      return copy_type(H5T_IEEE_F64LE);
    case Hdf5Type::kF32:
      return copy_type(H5T_IEEE_F32LE);
    case Hdf5Type::kInt32:
      return copy_type(H5T_STD_I32LE);
    case Hdf5Type::kInt64:
      return copy_type(H5T_STD_I64LE);
    case Hdf5Type::kUint16:
      return copy_type(H5T_STD_U16LE);
    case Hdf5Type::kUint8:
      return copy_type(H5T_STD_U8LE);
    case Hdf5Type::kF16:
    case Hdf5Type::kBf16:
      break;
  }
  // HDF5 1.10 has no 16-bit float of its own; these are ordinary user-defined ones, which
  // any HDF5 program converts by itself.
  const std::size_t mantissa = type == Hdf5Type::kF16 ? 10 : 7;
  Hdf5Handle narrow = copy_type(H5T_IEEE_F32LE);
  H5Tset_fields(narrow.id(), 15, mantissa, 15 - mantissa, 0, mantissa);
  H5Tset_size(narrow.id(), 2);
  H5Tset_ebias(narrow.id(), type == Hdf5Type::kF16 ? 15 : 127);
  return narrow;
}

}  // namespace detail

using detail::check_read;
using detail::check_write;
using detail::last_hdf5_error;

namespace {

/// HDF5 prints its error stack unless told otherwise; we put it into the exception.
void silence_hdf5() { H5Eset_auto2(H5E_DEFAULT, nullptr, nullptr); }

std::vector<std::string> split_path(const std::string& path) {
  std::vector<std::string> parts;
  std::size_t begin = 0;
  while (begin <= path.size()) {
    const std::size_t end = std::min(path.find('/', begin), path.size());
    if (end > begin) parts.push_back(path.substr(begin, end - begin));
    begin = end + 1;
  }
  return parts;
}

/// Both "parameters" and "/parameters" name a child of the root.
std::string join_path(const std::string& parent, const std::string& child) {
  std::string path = parent == "/" ? "" : parent;
  for (const std::string& part : split_path(child)) path += "/" + part;
  return path.empty() ? "/" : path;
}

}  // namespace

// The one global of this module: what it guards, HDF5's own state, is global as well.
Hdf5Lock::Hdf5Lock() : guard_([]() -> std::mutex& {
  static std::mutex mutex;
  return mutex;
}()) {}

Hdf5Handle::Hdf5Handle(Hdf5Handle&& other) noexcept
    : id_(std::exchange(other.id_, -1)), closer_(other.closer_) {}

Hdf5Handle& Hdf5Handle::operator=(Hdf5Handle&& other) noexcept {
  if (this != &other) {
    reset();
    id_ = std::exchange(other.id_, -1);
    closer_ = other.closer_;
  }
  return *this;
}

bool Hdf5Handle::reset() {
  if (id_ < 0) return true;
  return closer_(std::exchange(id_, -1)) >= 0;
}

bool Hdf5Group::has(const std::string& path) const {
  std::string prefix;
  for (const std::string& part : split_path(path)) {
    prefix += (prefix.empty() ? "" : "/") + part;
    const auto found = H5Lexists(handle_.id(), prefix.c_str(), H5P_DEFAULT);
    if (check_read(found, place(), "the group's members") == 0) return false;
  }
  return true;
}

std::vector<std::string> Hdf5Group::children() const {
  std::vector<std::string> names;
  const auto append = [](hid_t, const char* name, const H5L_info_t*,
                         void* out) -> herr_t {
    static_cast<std::vector<std::string>*>(out)->emplace_back(name);
    return 0;
  };
  check_read(
      H5Literate(handle_.id(), H5_INDEX_NAME, H5_ITER_INC, nullptr, append, &names),
      place(), "the group's members");
  std::sort(names.begin(), names.end());
  return names;
}

bool Hdf5Group::is_group(const std::string& name) const {
  H5O_info_t info;
  check_read(H5Oget_info_by_name2(handle_.id(), name.c_str(), &info, H5O_INFO_BASIC,
                                  H5P_DEFAULT),
             file_ + ": " + join_path(path_, name), "the object");
  return info.type == H5O_TYPE_GROUP;
}

Hdf5Group Hdf5Group::group(const std::string& path) const {
  const std::string full = join_path(path_, path);
  Hdf5Handle handle(check_read(H5Gopen2(handle_.id(), path.c_str(), H5P_DEFAULT),
                               file_ + ": " + full, "the group"),
                    H5Gclose);
  return {std::move(handle), file_, full};
}

Hdf5Dataset Hdf5Group::dataset(const std::string& path) const {
  const std::string full = join_path(path_, path);
  PLEAT_REQUIRE(has(path), InputError, "PL0302", "{}: there is no data set '{}'", file_,
                full);
  Hdf5Handle handle(check_read(H5Dopen2(handle_.id(), path.c_str(), H5P_DEFAULT),
                               file_ + ": " + full, "the data set"),
                    H5Dclose);
  return {std::move(handle), file_, full};
}

// HDF5 stamps the groups that it makes on the way with the time: the same run would not
// give the same file.
void Hdf5Group::create_parents(const std::string& path) {
  const std::size_t slash = path.find_last_of('/');
  if (slash != std::string::npos && slash > 0) create_group(path.substr(0, slash));
}

Hdf5Group Hdf5Group::create_group(const std::string& path) {
  const std::string full = join_path(path_, path);
  create_parents(path);
  const Hdf5Handle creation(H5Pcreate(H5P_GROUP_CREATE), H5Pclose);
  H5Pset_obj_track_times(creation.id(), 0);
  const hid_t id = has(path) ? H5Gopen2(handle_.id(), path.c_str(), H5P_DEFAULT)
                             : H5Gcreate2(handle_.id(), path.c_str(), H5P_DEFAULT,
                                          creation.id(), H5P_DEFAULT);
  return {Hdf5Handle(check_write(id, file_ + ": " + full, "the group"), H5Gclose), file_,
          full};
}

Hdf5Dataset Hdf5Group::create_dataset(const std::string& path, const tensor::Shape& shape,
                                      Hdf5Type type) {
  const std::string full = join_path(path_, path);
  create_parents(path);
  // The space of the whole array is taken now and not filled: every element gets written.
  const Hdf5Handle creation(H5Pcreate(H5P_DATASET_CREATE), H5Pclose);
  H5Pset_alloc_time(creation.id(), H5D_ALLOC_TIME_EARLY);
  H5Pset_fill_time(creation.id(), H5D_FILL_TIME_NEVER);
  H5Pset_obj_track_times(creation.id(), 0);  // the same run gives the same file
  const Hdf5Handle space = detail::make_space(shape);
  const Hdf5Handle file_type = detail::file_type(type);
  const hid_t id = H5Dcreate2(handle_.id(), path.c_str(), file_type.id(), space.id(),
                              H5P_DEFAULT, creation.id(), H5P_DEFAULT);
  Hdf5Handle handle(check_write(id, file_ + ": " + full, "the data set"), H5Dclose);
  return {std::move(handle), file_, full};
}

template <class T>
Hdf5Dataset Hdf5Group::write_dataset(const std::string& path, const tensor::Shape& shape,
                                     std::span<const T> values) {
  Hdf5Dataset dataset = create_dataset(path, shape, detail::type_of<T>());
  dataset.write<T>(tensor::Shape(shape.size(), 0), shape, values);
  return dataset;
}

template Hdf5Dataset Hdf5Group::write_dataset(const std::string&, const tensor::Shape&,
                                              std::span<const std::int32_t>);
template Hdf5Dataset Hdf5Group::write_dataset(const std::string&, const tensor::Shape&,
                                              std::span<const std::int64_t>);
template Hdf5Dataset Hdf5Group::write_dataset(const std::string&, const tensor::Shape&,
                                              std::span<const float>);
template Hdf5Dataset Hdf5Group::write_dataset(const std::string&, const tensor::Shape&,
                                              std::span<const double>);

Hdf5File Hdf5File::open_read(const std::string& path) {
  silence_hdf5();
  struct stat status {};
  PLEAT_REQUIRE(stat(path.c_str(), &status) == 0, InputError, "PL0301",
                "cannot open '{}': {}", path, std::strerror(errno));
  PLEAT_REQUIRE(S_ISREG(status.st_mode), InputError, "PL0301", "'{}' is not a file",
                path);
  const Hdf5Handle access(H5Pcreate(H5P_FILE_ACCESS), H5Pclose);
  // Parallel file systems often have no locks, and a reader needs none.
  H5Pset_file_locking(access.id(), 0, 1);
  const hid_t id = H5Fopen(path.c_str(), H5F_ACC_RDONLY, access.id());
  PLEAT_REQUIRE(id >= 0, InputError, "PL0301",
                "'{}' is not an HDF5 file, or it is damaged or truncated (HDF5: {})",
                path, last_hdf5_error());
  return {Hdf5Handle(id, H5Fclose), path};
}

namespace {

/// How files are made and changed; versions of the 1.10 format, whose metadata carry checksums.
Hdf5Handle write_access() {
  Hdf5Handle access(H5Pcreate(H5P_FILE_ACCESS), H5Pclose);
  H5Pset_libver_bounds(access.id(), H5F_LIBVER_V110, H5F_LIBVER_V110);
  // Groups and data sets that are still held do not keep the file from being complete.
  H5Pset_fclose_degree(access.id(), H5F_CLOSE_STRONG);
  // Parallel file systems often have no locks; a temporary name has one writer.
  H5Pset_file_locking(access.id(), 0, 1);
  return access;
}

std::int64_t create_file(const std::string& path, const Hdf5Handle& access) {
  const Hdf5Handle creation(H5Pcreate(H5P_FILE_CREATE), H5Pclose);
  H5Pset_obj_track_times(creation.id(), 0);  // of the root
  const hid_t id = H5Fcreate(path.c_str(), H5F_ACC_TRUNC, creation.id(), access.id());
  return check_write(id, path, "the new file");
}

}  // namespace

Hdf5File Hdf5File::create(const std::string& path, MPI_Comm comm) {
  silence_hdf5();
  const Hdf5Handle access = write_access();
  H5Pset_fapl_mpio(access.id(), comm, MPI_INFO_NULL);
  return {Hdf5Handle(create_file(path, access), H5Fclose), path};
}

Hdf5File Hdf5File::create_serial(const std::string& path, std::int64_t alignment) {
  silence_hdf5();
  const Hdf5Handle access = write_access();
  const auto multiple = static_cast<hsize_t>(std::max<std::int64_t>(1, alignment));
  H5Pset_alignment(access.id(), multiple, multiple);
  return {Hdf5Handle(create_file(path, access), H5Fclose), path};
}

Hdf5File Hdf5File::open_write(const std::string& path) {
  silence_hdf5();
  const Hdf5Handle access = write_access();
  const hid_t id = H5Fopen(path.c_str(), H5F_ACC_RDWR, access.id());
  return {Hdf5Handle(check_write(id, path, "the file"), H5Fclose), path};
}

Hdf5Group Hdf5File::root() const {
  Hdf5Handle handle(
      check_read(H5Gopen2(handle_.id(), "/", H5P_DEFAULT), path_, "its root"), H5Gclose);
  return {std::move(handle), path_, "/"};
}

void Hdf5File::close() {
  if (handle_.id() < 0) return;
  check_write(H5Fflush(handle_.id(), H5F_SCOPE_GLOBAL), path_, "buffered data");
  check_write(handle_.reset() ? 0 : -1, path_, "the end of the file");
}

}  // namespace pleat::io
