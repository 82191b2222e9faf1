// SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include <hdf5.h>

#include "pleat/base/error.hpp"
#include "pleat/io/hdf5.hpp"
#include "pleat/io/hdf5_detail.hpp"

namespace pleat::io {

using detail::check_read;
using detail::check_write;

namespace {

constexpr std::int64_t kLargestAttribute =
    64 << 20;  // bytes; a damaged size must not matter

/// An open attribute with what is needed to read it.
struct Attribute {
  Hdf5Handle handle;
  Hdf5Handle type;
  H5T_class_t type_class = H5T_NO_CLASS;
  std::int64_t count = 0;
  std::string place;
};

Attribute open_attribute(std::int64_t object, const std::string& name,
                         const std::string& owner) {
  Attribute attribute;
  attribute.place = owner + ", attribute '" + name + "'";
  PLEAT_REQUIRE(check_read(H5Aexists(object, name.c_str()), owner, "the attributes") > 0,
                InputError, "PL0302", "{} is missing", attribute.place);
  attribute.handle = {check_read(H5Aopen(object, name.c_str(), H5P_DEFAULT),
                                 attribute.place, "the attribute"),
                      H5Aclose};
  attribute.type = {
      check_read(H5Aget_type(attribute.handle.id()), attribute.place, "its type"),
      H5Tclose};
  attribute.type_class = H5Tget_class(attribute.type.id());
  const Hdf5Handle space(
      check_read(H5Aget_space(attribute.handle.id()), attribute.place, "its shape"),
      H5Sclose);
  attribute.count =
      tensor::element_count(detail::space_shape(space.id(), attribute.place));
  const auto element = static_cast<std::int64_t>(H5Tget_size(attribute.type.id()));
  PLEAT_REQUIRE(element > 0 && attribute.count <= kLargestAttribute / element, InputError,
                "PL0302", "{} is larger than an attribute can be", attribute.place);
  return attribute;
}

void require_class(const Attribute& attribute, H5T_class_t expected, const char* text) {
  PLEAT_REQUIRE(attribute.type_class == expected, InputError, "PL0302", "{} is not {}",
                attribute.place, text);
}

template <class T>
std::vector<T> read_numbers(const Attribute& attribute, hid_t memory_type) {
  std::vector<T> values(static_cast<std::size_t>(attribute.count));
  check_read(H5Aread(attribute.handle.id(), memory_type, values.data()), attribute.place,
             "the value");
  return values;
}

template <class T>
T read_number(const Attribute& attribute, hid_t memory_type) {
  PLEAT_REQUIRE(attribute.count == 1, InputError, "PL0302", "{} is not a single number",
                attribute.place);
  return read_numbers<T>(attribute, memory_type).front();
}

std::string read_variable_string(const Attribute& attribute) {
  char* text = nullptr;
  check_read(H5Aread(attribute.handle.id(), attribute.type.id(), &text), attribute.place,
             "the text");
  std::string value = text == nullptr ? "" : text;
  H5free_memory(text);
  return value;
}

std::string read_string(const Attribute& attribute) {
  require_class(attribute, H5T_STRING, "a text");
  PLEAT_REQUIRE(attribute.count == 1, InputError, "PL0302", "{} is not a single text",
                attribute.place);
  if (H5Tis_variable_str(attribute.type.id()) > 0) return read_variable_string(attribute);
  std::string value(H5Tget_size(attribute.type.id()), '\0');
  check_read(H5Aread(attribute.handle.id(), attribute.type.id(), value.data()),
             attribute.place, "the text");
  value.resize(std::min(value.find('\0'), value.size()));
  return value;
}

}  // namespace

std::vector<std::string> Hdf5Object::attribute_names() const {
  std::vector<std::string> names;
  const auto append = [](hid_t, const char* name, const H5A_info_t*,
                         void* out) -> herr_t {
    static_cast<std::vector<std::string>*>(out)->emplace_back(name);
    return 0;
  };
  check_read(
      H5Aiterate2(handle_.id(), H5_INDEX_NAME, H5_ITER_INC, nullptr, append, &names),
      place(), "the attributes");
  std::sort(names.begin(), names.end());
  return names;
}

bool Hdf5Object::has_attribute(const std::string& name) const {
  return check_read(H5Aexists(handle_.id(), name.c_str()), place(), "the attributes") > 0;
}

std::string Hdf5Object::string_attribute(const std::string& name) const {
  return read_string(open_attribute(handle_.id(), name, place()));
}

std::int64_t Hdf5Object::int64_attribute(const std::string& name) const {
  const Attribute attribute = open_attribute(handle_.id(), name, place());
  require_class(attribute, H5T_INTEGER, "an integer");
  return read_number<std::int64_t>(attribute, H5T_NATIVE_INT64);
}

double Hdf5Object::double_attribute(const std::string& name) const {
  const Attribute attribute = open_attribute(handle_.id(), name, place());
  require_class(attribute, H5T_FLOAT, "a floating-point number");
  return read_number<double>(attribute, H5T_NATIVE_DOUBLE);
}

std::vector<std::int64_t> Hdf5Object::int64_array_attribute(
    const std::string& name) const {
  const Attribute attribute = open_attribute(handle_.id(), name, place());
  require_class(attribute, H5T_INTEGER, "an array of integers");
  return read_numbers<std::int64_t>(attribute, H5T_NATIVE_INT64);
}

std::vector<double> Hdf5Object::double_array_attribute(const std::string& name) const {
  const Attribute attribute = open_attribute(handle_.id(), name, place());
  require_class(attribute, H5T_FLOAT, "an array of floating-point numbers");
  return read_numbers<double>(attribute, H5T_NATIVE_DOUBLE);
}

std::string Hdf5Object::attribute_text(const std::string& name, bool exact) const {
  const Attribute attribute = open_attribute(handle_.id(), name, place());
  switch (attribute.type_class) {
    case H5T_STRING:
      return read_string(attribute);
    case H5T_INTEGER:
      return fmt::format(
          "{}", fmt::join(read_numbers<std::int64_t>(attribute, H5T_NATIVE_INT64), " "));
    case H5T_FLOAT: {
      const auto values = read_numbers<double>(attribute, H5T_NATIVE_DOUBLE);
      return exact ? fmt::format("{:.17g}", fmt::join(values, " "))
                   : fmt::format("{}", fmt::join(values, " "));
    }
    default:
      return "(of another type)";
  }
}

void Hdf5Object::write_attribute(const std::string& name, std::int64_t type,
                                 std::int64_t space, const void* value) {
  const std::string attribute_place = place() + ", attribute '" + name + "'";
  const bool exists = has_attribute(name);
  if (exists) {
    check_write(H5Adelete(handle_.id(), name.c_str()), attribute_place, "the old value");
  }
  const hid_t id =
      H5Acreate2(handle_.id(), name.c_str(), type, space, H5P_DEFAULT, H5P_DEFAULT);
  const Hdf5Handle attribute(check_write(id, attribute_place, "the attribute"), H5Aclose);
  check_write(H5Awrite(attribute.id(), type, value), attribute_place, "the value");
}

void Hdf5Object::set_attribute(const std::string& name, std::string_view value) {
  // Of fixed length, because those of variable length lie outside HDF5's own checksums.
  const Hdf5Handle type = detail::copy_type(H5T_C_S1);
  const std::string padded = value.empty() ? std::string(1, '\0') : std::string(value);
  H5Tset_size(type.id(), padded.size());
  H5Tset_cset(type.id(), H5T_CSET_UTF8);
  H5Tset_strpad(type.id(), H5T_STR_NULLPAD);
  const Hdf5Handle space(H5Screate(H5S_SCALAR), H5Sclose);
  write_attribute(name, type.id(), space.id(), padded.data());
}

void Hdf5Object::set_attribute(const std::string& name, const char* value) {
  set_attribute(name, std::string_view(value));
}

void Hdf5Object::set_attribute(const std::string& name, std::int64_t value) {
  const Hdf5Handle space(H5Screate(H5S_SCALAR), H5Sclose);
  write_attribute(name, H5T_STD_I64LE, space.id(), &value);
}

void Hdf5Object::set_attribute(const std::string& name, double value) {
  const Hdf5Handle space(H5Screate(H5S_SCALAR), H5Sclose);
  write_attribute(name, H5T_IEEE_F64LE, space.id(), &value);
}

void Hdf5Object::set_attribute(const std::string& name,
                               std::span<const std::int64_t> values) {
  const Hdf5Handle space = detail::make_space({static_cast<std::int64_t>(values.size())});
  write_attribute(name, H5T_STD_I64LE, space.id(), values.data());
}

void Hdf5Object::set_attribute(const std::string& name, std::span<const double> values) {
  const Hdf5Handle space = detail::make_space({static_cast<std::int64_t>(values.size())});
  write_attribute(name, H5T_IEEE_F64LE, space.id(), values.data());
}

void Hdf5Object::overwrite_attribute(const std::string& name, std::string_view value) {
  const Attribute attribute = open_attribute(handle_.id(), name, place());
  PLEAT_ASSERT(attribute.type_class == H5T_STRING &&
                   H5Tget_size(attribute.type.id()) == value.size(),
               "{} is not a text of {} bytes", attribute.place, value.size());
  check_write(H5Awrite(attribute.handle.id(), attribute.type.id(), value.data()),
              attribute.place, "the value");
}

}  // namespace pleat::io
