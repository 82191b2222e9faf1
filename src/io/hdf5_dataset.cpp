// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <array>
#include <limits>
#include <new>
#include <stdexcept>

#include <hdf5.h>

#include "pleat/base/error.hpp"
#include "pleat/io/hdf5.hpp"
#include "pleat/io/hdf5_detail.hpp"

namespace pleat::io {

using detail::check_read;
using detail::check_write;

namespace detail {

Hdf5Handle make_space(const tensor::Shape& shape) {
  if (shape.empty()) return {H5Screate(H5S_SCALAR), H5Sclose};
  const std::vector<hsize_t> extents(shape.begin(), shape.end());
  return {H5Screate_simple(static_cast<int>(extents.size()), extents.data(), nullptr),
          H5Sclose};
}

tensor::Shape space_shape(std::int64_t space, const std::string& place) {
  PLEAT_REQUIRE(H5Sget_simple_extent_type(space) != H5S_NULL, InputError, "PL0302",
                "{} is empty", place);
  const auto rank = check_read(H5Sget_simple_extent_ndims(space), place, "the shape");
  std::vector<hsize_t> extents(static_cast<std::size_t>(rank));
  check_read(H5Sget_simple_extent_dims(space, extents.data(), nullptr), place,
             "the shape");
  // The product of the extents must stay far from overflow, also times the element size.
  std::int64_t room = std::int64_t{1} << 56;
  for (const hsize_t extent : extents) {
    PLEAT_REQUIRE(extent <= static_cast<hsize_t>(room), InputError, "PL0302",
                  "{} has an impossible shape", place);
    if (extent > 0) room /= static_cast<std::int64_t>(extent);
  }
  return {extents.begin(), extents.end()};
}

}  // namespace detail

namespace {

/// Integers that do not fit make the transfer fail; HDF5 would cut them silently.
H5T_conv_ret_t refuse_out_of_range(H5T_conv_except_t problem, hid_t, hid_t, void*, void*,
                                   void* seen) {
  if (problem != H5T_CONV_EXCEPT_RANGE_HI && problem != H5T_CONV_EXCEPT_RANGE_LOW) {
    return H5T_CONV_UNHANDLED;
  }
  *static_cast<bool*>(seen) = true;
  return H5T_CONV_ABORT;
}

hid_t memory_type(Hdf5Type type) {
  switch (type) {
    case Hdf5Type::kF64:
      return H5T_NATIVE_DOUBLE;
    case Hdf5Type::kF32:
      return H5T_NATIVE_FLOAT;
    case Hdf5Type::kInt32:
      return H5T_NATIVE_INT32;
    case Hdf5Type::kInt64:
      return H5T_NATIVE_INT64;
    case Hdf5Type::kUint16:
      return H5T_NATIVE_UINT16;
    default:
      return H5T_NATIVE_UINT8;
  }
}

Hdf5Kind kind_of(std::int64_t type) {
  switch (H5Tget_class(type)) {
    case H5T_INTEGER:
    case H5T_ENUM:
      return Hdf5Kind::kInteger;  // h5py writes booleans as an enumeration
    case H5T_FLOAT:
      return Hdf5Kind::kFloat;
    default:
      return Hdf5Kind::kOther;
  }
}

/// The filters that wrote the data set and that this HDF5 lacks, as "lzf (number 32000)".
/// Asked for only when reading has failed: chunks may have been written without them.
std::vector<std::string> missing_filters(std::int64_t dataset) {
  const Hdf5Handle creation(H5Dget_create_plist(dataset), H5Pclose);
  std::vector<std::string> missing;
  const int filters = H5Pget_nfilters(creation.id());
  for (int i = 0; i < filters; ++i) {
    unsigned flags = 0;
    std::size_t values = 0;
    std::array<char, 80> name{};
    const H5Z_filter_t number =
        H5Pget_filter2(creation.id(), static_cast<unsigned>(i), &flags, &values, nullptr,
                       name.size(), name.data(), nullptr);
    if (number < 0 || H5Zfilter_avail(number) > 0) continue;
    name.back() = '\0';
    missing.push_back(fmt::format(
        "{} (number {})", name[0] == '\0' ? "without a name" : name.data(), number));
  }
  H5Eclear2(H5E_DEFAULT);
  return missing;
}

/// The box selected in a data set's space.
struct Selection {
  Hdf5Handle file_space;
  Hdf5Handle memory_space;
};

Selection select_box(std::int64_t dataset, const tensor::Shape& offset,
                     const tensor::Shape& extent) {
  Selection selection{{H5Dget_space(dataset), H5Sclose}, detail::make_space(extent)};
  if (!offset.empty()) {
    const std::vector<hsize_t> start(offset.begin(), offset.end());
    const std::vector<hsize_t> count(extent.begin(), extent.end());
    H5Sselect_hyperslab(selection.file_space.id(), H5S_SELECT_SET, start.data(), nullptr,
                        count.data(), nullptr);
  }
  return selection;
}

std::size_t box_count(const tensor::Shape& shape, const tensor::Shape& offset,
                      const tensor::Shape& extent, const std::string& place) {
  PLEAT_ASSERT(offset.size() == shape.size() && extent.size() == shape.size(),
               "{}: a box of another rank", place);
  for (std::size_t dim = 0; dim < shape.size(); ++dim) {
    PLEAT_ASSERT(
        offset[dim] >= 0 && extent[dim] >= 0 && offset[dim] <= shape[dim] - extent[dim],
        "{}: the box leaves the data set in dimension {}", place, dim);
  }
  return static_cast<std::size_t>(tensor::element_count(extent));
}

}  // namespace

Hdf5Type hdf5_type(ElementType type) {
  constexpr std::array<Hdf5Type, 4> kTypes{Hdf5Type::kF64, Hdf5Type::kF32, Hdf5Type::kF16,
                                           Hdf5Type::kBf16};
  return kTypes[static_cast<std::size_t>(type)];
}

Hdf5Dataset::Hdf5Dataset(Hdf5Handle handle, std::string file, std::string path)
    : Hdf5Object(std::move(handle), std::move(file), std::move(path)) {
  const Hdf5Handle space(check_read(H5Dget_space(handle_.id()), place(), "the shape"),
                         H5Sclose);
  shape_ = detail::space_shape(space.id(), place());
  const Hdf5Handle type(check_read(H5Dget_type(handle_.id()), place(), "the type"),
                        H5Tclose);
  kind_ = kind_of(type.id());
}

std::string Hdf5Dataset::type_text() const {
  const Hdf5Handle type(H5Dget_type(handle_.id()), H5Tclose);
  const std::size_t bits = 8 * H5Tget_size(type.id());
  if (kind_ == Hdf5Kind::kInteger) {
    return fmt::format("{}int{}", H5Tget_sign(type.id()) == H5T_SGN_NONE ? "u" : "",
                       bits);
  }
  if (kind_ != Hdf5Kind::kFloat) return "other";
  const bool brain = H5Tequal(type.id(), detail::file_type(Hdf5Type::kBf16).id()) > 0;
  return brain ? "bfloat16" : fmt::format("float{}", bits);
}

ElementType Hdf5Dataset::element_type() const {
  const Hdf5Handle type(H5Dget_type(handle_.id()), H5Tclose);
  for (const ElementType candidate :
       {ElementType::kF64, ElementType::kF32, ElementType::kF16, ElementType::kBf16}) {
    const Hdf5Handle expected = detail::file_type(hdf5_type(candidate));
    if (H5Tequal(type.id(), expected.id()) > 0) return candidate;
  }
  PLEAT_FAIL(InputError, "PL0302", "{} is of type {}, expected F64, F32, F16 or BF16",
             place(), type_text());
}

std::optional<std::int64_t> Hdf5Dataset::file_offset() const {
  const Hdf5Handle creation(
      check_read(H5Dget_create_plist(handle_.id()), place(), "the layout"), H5Pclose);
  const bool contiguous = H5Pget_layout(creation.id()) == H5D_CONTIGUOUS &&
                          H5Pget_external_count(creation.id()) == 0;
  if (!contiguous) return std::nullopt;
  const haddr_t offset = H5Dget_offset(handle_.id());
  H5Eclear2(H5E_DEFAULT);
  if (offset == HADDR_UNDEF) return std::nullopt;
  return static_cast<std::int64_t>(offset);
}

void Hdf5Dataset::transfer_in(std::int64_t memory_type, const tensor::Shape& offset,
                              const tensor::Shape& extent, void* values,
                              bool check_range) const {
  const Selection selection = select_box(handle_.id(), offset, extent);
  const Hdf5Handle transfer(H5Pcreate(H5P_DATASET_XFER), H5Pclose);
  bool out_of_range = false;
  if (check_range) H5Pset_type_conv_cb(transfer.id(), refuse_out_of_range, &out_of_range);
  const herr_t result = H5Dread(handle_.id(), memory_type, selection.memory_space.id(),
                                selection.file_space.id(), transfer.id(), values);
  PLEAT_REQUIRE(!out_of_range, InputError, "PL0304",
                "{} ({}) holds a value that is out of range", place(), type_text());
  if (result >= 0) return;
  const std::string reason = detail::last_hdf5_error();
  const std::vector<std::string> missing = missing_filters(handle_.id());
  PLEAT_REQUIRE(
      missing.empty(), InputError, "PL0314",
      "{} is compressed with the filter {}, which this HDF5 library does not "
      "have\nHINT: where the file can be read, rewrite it with gzip or without "
      "a filter; or name the folder of the filter's plugin in HDF5_PLUGIN_PATH.",
      place(), fmt::join(missing, ", "));
  detail::fail_read(place(), "the values", reason);
}

void Hdf5Dataset::transfer_out(std::int64_t memory_type, const tensor::Shape& offset,
                               const tensor::Shape& extent, const void* values) {
  const Selection selection = select_box(handle_.id(), offset, extent);
  check_write(H5Dwrite(handle_.id(), memory_type, selection.memory_space.id(),
                       selection.file_space.id(), H5P_DEFAULT, values),
              place(), "the values");
}

template <class T>
void Hdf5Dataset::read(const tensor::Shape& offset, const tensor::Shape& extent,
                       std::span<T> values) const {
  constexpr bool kWantsInteger = std::is_integral_v<T>;
  PLEAT_REQUIRE(kind_ == (kWantsInteger ? Hdf5Kind::kInteger : Hdf5Kind::kFloat),
                InputError, "PL0302", "{} holds {}, expected {}", place(), type_text(),
                kWantsInteger ? "integers" : "floating-point numbers");
  PLEAT_ASSERT(box_count(shape_, offset, extent, place()) == values.size(),
               "{}: the box does not fill the memory", place());
  if (values.empty()) return;
  transfer_in(memory_type(detail::type_of<T>()), offset, extent, values.data(),
              kWantsInteger);
}

template <class T>
std::vector<T> Hdf5Dataset::read_all() const {
  std::vector<T> values;
  try {
    values.resize(static_cast<std::size_t>(count()));
  } catch (const std::bad_alloc&) {
    PLEAT_FAIL(InputError, "PL0302", "{} has {} elements, more than memory can hold",
               place(), count());
  } catch (const std::length_error&) {
    PLEAT_FAIL(InputError, "PL0302", "{} has {} elements, more than memory can hold",
               place(), count());
  }
  read<T>(tensor::Shape(shape_.size(), 0), shape_, values);
  return values;
}

void Hdf5Dataset::read_raw(const tensor::Shape& offset, const tensor::Shape& extent,
                           std::span<std::byte> bytes) const {
  const ElementType type = element_type();
  PLEAT_ASSERT(
      box_count(shape_, offset, extent, place()) * element_size(type) == bytes.size(),
      "{}: the box does not fill the memory", place());
  if (bytes.empty()) return;
  const Hdf5Handle as_stored = detail::file_type(hdf5_type(type));
  transfer_in(as_stored.id(), offset, extent, bytes.data(), false);
}

template <class T>
void Hdf5Dataset::write(const tensor::Shape& offset, const tensor::Shape& extent,
                        std::span<const T> values) {
  PLEAT_ASSERT(box_count(shape_, offset, extent, place()) == values.size(),
               "{}: the box is not the memory's size", place());
  if (values.empty()) return;
  transfer_out(memory_type(detail::type_of<T>()), offset, extent, values.data());
}

void Hdf5Dataset::write_raw(const tensor::Shape& offset, const tensor::Shape& extent,
                            std::span<const std::byte> bytes) {
  const ElementType type = element_type();
  PLEAT_ASSERT(
      box_count(shape_, offset, extent, place()) * element_size(type) == bytes.size(),
      "{}: the box is not the memory's size", place());
  if (bytes.empty()) return;
  const Hdf5Handle as_stored = detail::file_type(hdf5_type(type));
  transfer_out(as_stored.id(), offset, extent, bytes.data());
}

template void Hdf5Dataset::read(const tensor::Shape&, const tensor::Shape&,
                                std::span<std::uint8_t>) const;
template void Hdf5Dataset::read(const tensor::Shape&, const tensor::Shape&,
                                std::span<std::int32_t>) const;
template void Hdf5Dataset::read(const tensor::Shape&, const tensor::Shape&,
                                std::span<std::int64_t>) const;
template void Hdf5Dataset::read(const tensor::Shape&, const tensor::Shape&,
                                std::span<float>) const;
template void Hdf5Dataset::read(const tensor::Shape&, const tensor::Shape&,
                                std::span<double>) const;
template std::vector<std::uint8_t> Hdf5Dataset::read_all() const;
template std::vector<std::int32_t> Hdf5Dataset::read_all() const;
template std::vector<std::int64_t> Hdf5Dataset::read_all() const;
template std::vector<float> Hdf5Dataset::read_all() const;
template std::vector<double> Hdf5Dataset::read_all() const;
template void Hdf5Dataset::write(const tensor::Shape&, const tensor::Shape&,
                                 std::span<const std::uint8_t>);
template void Hdf5Dataset::write(const tensor::Shape&, const tensor::Shape&,
                                 std::span<const std::uint16_t>);
template void Hdf5Dataset::write(const tensor::Shape&, const tensor::Shape&,
                                 std::span<const std::int32_t>);
template void Hdf5Dataset::write(const tensor::Shape&, const tensor::Shape&,
                                 std::span<const std::int64_t>);
template void Hdf5Dataset::write(const tensor::Shape&, const tensor::Shape&,
                                 std::span<const float>);
template void Hdf5Dataset::write(const tensor::Shape&, const tensor::Shape&,
                                 std::span<const double>);

}  // namespace pleat::io
