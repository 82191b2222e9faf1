// SPDX-License-Identifier: Apache-2.0
#pragma once

/// \file
/// \brief Integer datasets of an HDF5 file seen as rows.

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "pleat/io/hdf5.hpp"

namespace pleat::io {

/// \brief Rows along the last dimension; the leading ones are flattened in file order.
///
/// A run of consecutive rows is read ahead as soon as two neighbours were asked for, so
/// that neither file order nor random order reads much in vain, and memory stays bounded.
/// For one thread.
class Hdf5Rows {
 public:
  Hdf5Rows(Hdf5Dataset dataset, std::string name);
  const std::string& name() const { return name_; }
  std::string type_text() const { return dataset_.type_text(); }
  const tensor::Shape& shape() const { return dataset_.shape(); }
  std::int64_t rows() const { return rows_; }
  std::int64_t width() const { return width_; }
  /// \param row  [width()]
  void read(std::int64_t number, std::span<std::int64_t> row) const;

 private:
  void load(std::int64_t first, std::int64_t count) const;

  Hdf5Dataset dataset_;
  std::string name_;
  std::int64_t rows_ = 1;
  std::int64_t width_ = 0;
  mutable std::int64_t held_first_ = -1;
  mutable std::int64_t held_count_ = 0;
  mutable std::vector<std::int64_t> held_;
};

/// \brief A dataset that must hold integers.
/// \throws InputError PL0507 absent (names those that exist), PL0509 of another type
Hdf5Dataset open_integers(const Hdf5File& file, const std::string& name);
/// \brief The same with at least one dimension. \throws InputError PL0508 too
Hdf5Rows open_rows(const Hdf5File& file, const std::string& name);

}  // namespace pleat::io
