// SPDX-License-Identifier: Apache-2.0
#include "pleat/io/hdf5_rows.hpp"

#include <algorithm>

#include "pleat/base/error.hpp"

namespace pleat::io {

namespace {

constexpr std::int64_t kReadAheadElements = 1 << 16;
constexpr std::int64_t kMaxWidth = 1 << 24;
constexpr std::size_t kListedDatasets = 8;
constexpr std::size_t kCountedDatasets = 10000;
constexpr int kListedDepth = 6;  // links may form circles

void list_datasets(const Hdf5Group& group, const std::string& prefix, int depth,
                   std::vector<std::string>& names) {
  for (const std::string& child : group.children()) {
    if (names.size() >= kCountedDatasets || depth > kListedDepth) return;
    try {
      if (group.is_group(child)) {
        list_datasets(group.group(child), prefix + child + "/", depth + 1, names);
      } else {
        names.push_back(prefix + child);
      }
    } catch (const InputError&) {
      continue;  // a link to nowhere, or damage: not what the user is looking for
    }
  }
}

/// "a, b, c", of many the first ones and how many more there are.
std::string datasets_text(const Hdf5Group& root) {
  std::vector<std::string> names;
  list_datasets(root, "", 0, names);
  if (names.empty()) return "none";
  const std::size_t shown = std::min(names.size(), kListedDatasets);
  const std::string text =
      fmt::to_string(fmt::join(names.begin(), names.begin() + shown, ", "));
  if (shown == names.size()) return text;
  const char* least = names.size() == kCountedDatasets ? "at least " : "";
  return fmt::format("{}, ... and {}{} more", text, least, names.size() - shown);
}

}  // namespace

Hdf5Dataset open_integers(const Hdf5File& file, const std::string& name) {
  const Hdf5Group root = file.root();
  if (name.empty() || !root.has(name) || root.is_group(name)) {
    PLEAT_FAIL(InputError, "PL0507",
               "'{}' has no dataset '{}'; it has: {}\nHINT: name it "
               "with data.dataset.",
               file.path(), name, datasets_text(root));
  }
  Hdf5Dataset dataset = root.dataset(name);
  PLEAT_REQUIRE(dataset.kind() == Hdf5Kind::kInteger, InputError, "PL0509",
                "dataset '{}' of '{}' is of type {}, expected integers", name,
                file.path(), dataset.type_text());
  return dataset;
}

Hdf5Rows open_rows(const Hdf5File& file, const std::string& name) {
  Hdf5Dataset dataset = open_integers(file, name);
  PLEAT_REQUIRE(
      !dataset.shape().empty(), InputError, "PL0508",
      "dataset '{}' of '{}' is a single number, expected [samples, batch.sequence "
      "+ 1]",
      name, file.path());
  // In doubles, since a damaged file may announce more elements than can be counted.
  double elements = 1.0;
  for (const std::int64_t extent : dataset.shape())
    elements *= static_cast<double>(extent);
  PLEAT_REQUIRE(elements < 0x1.0p48 && dataset.shape().back() <= kMaxWidth, InputError,
                "PL0508", "dataset '{}' of '{}' announces {:g} elements, {} in a row",
                name, file.path(), elements, dataset.shape().back());
  return {std::move(dataset), name};
}

Hdf5Rows::Hdf5Rows(Hdf5Dataset dataset, std::string name)
    : dataset_(std::move(dataset)),
      name_(std::move(name)),
      width_(dataset_.shape().back()) {
  for (std::size_t d = 0; d + 1 < dataset_.shape().size(); ++d)
    rows_ *= dataset_.shape()[d];
}

void Hdf5Rows::read(std::int64_t number, std::span<std::int64_t> row) const {
  PLEAT_ASSERT(number >= 0 && number < rows_, "row {} of {}", number, rows_);
  if (number < held_first_ || number >= held_first_ + held_count_) {
    const bool in_order = number == held_first_ + held_count_;
    const std::int64_t ahead = std::max<std::int64_t>(1, kReadAheadElements / width_);
    load(number, in_order ? std::min(ahead, rows_ - number) : 1);
  }
  const auto from = held_.begin() + (number - held_first_) * width_;
  std::copy_n(from, width_, row.begin());
}

/// One box per run of rows that agree in all leading dimensions but the last of them.
void Hdf5Rows::load(std::int64_t first, std::int64_t count) const {
  const tensor::Shape& shape = dataset_.shape();
  const std::size_t leading = shape.size() - 1;
  held_count_ = 0;
  held_.resize(static_cast<std::size_t>(count * width_));
  for (std::int64_t done = 0; done < count;) {
    tensor::Shape offset(shape.size(), 0);
    tensor::Shape extent(shape.size(), 1);
    std::int64_t rest = first + done;
    for (std::size_t d = leading; d-- > 0;) {
      offset[d] = rest % shape[d];
      rest /= shape[d];
    }
    std::int64_t run = 1;
    if (leading > 0) {
      run = std::min(count - done, shape[leading - 1] - offset[leading - 1]);
      extent[leading - 1] = run;
    }
    extent[leading] = width_;
    const auto begin = static_cast<std::size_t>(done * width_);
    dataset_.read<std::int64_t>(
        offset, extent,
        std::span(held_).subspan(begin, static_cast<std::size_t>(run * width_)));
    done += run;
  }
  held_first_ = first;
  held_count_ = count;
}

}  // namespace pleat::io
