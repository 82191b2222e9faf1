// SPDX-License-Identifier: Apache-2.0
/// \file
/// \brief Checkpoints with unusual tables, texts and places.

#include <hdf5.h>

#include "files/support.hpp"
#include "pleat/io/checksum.hpp"

namespace pleat::io {
namespace {

using test::message_of;
using testing::HasSubstr;

constexpr std::int64_t kCount = 1000;

tensor::ParameterSpec specification() { return test::parameter("w", {kCount}); }

std::vector<double> values() {
  std::vector<double> all(kCount);
  for (std::size_t i = 0; i < all.size(); ++i) all[i] = static_cast<double>(i) / 7;
  return all;
}

/// A checkpoint of one tensor.
void save(const std::string& path, const CheckpointInfo& info = test::unusual_info()) {
  CheckpointWriter writer(
      path, info, {{TensorGroup::kParameters, "w", {kCount}, ElementType::kF64}},
      MPI_COMM_SELF);
  const std::vector<double> all = values();
  writer.add(TensorGroup::kParameters, specification(), {0, kCount},
             std::as_bytes(std::span(all)));
  writer.write();
  writer.commit();
}

std::vector<double> load(const std::string& path) {
  std::vector<double> all(kCount);
  CheckpointLoader loader(path, MPI_COMM_SELF);
  loader.add<double>(TensorGroup::kParameters, specification(), {0, kCount}, all, true);
  loader.read();
  return all;
}

// Tables that no bit flip makes, with right checksums of their own.
class CheckpointTable : public testing::Test {
 protected:
  CheckpointTable() { save(path_); }

  /// Works on the file with HDF5, then makes the table's checksum right again.
  void edit(const std::function<void(hid_t)>& work) {
    const hid_t file = H5Fopen(path_.c_str(), H5F_ACC_RDWR, H5P_DEFAULT);
    work(file);
    H5Fclose(file);
    Hdf5File written = Hdf5File::open_write(path_);
    Hdf5Group root = written.root();
    std::string table;
    for (const std::string& name : root.group("parameters").children()) {
      Hdf5Dataset dataset = root.dataset("parameters/" + name);
      if (!dataset.has_attribute("checksum")) {
        dataset.set_attribute("checksum", checksum_text(checksum_));
      }
      table += checkpoint_table_line("/parameters/" + name, dataset.element_type(),
                                     dataset.shape(), checksum_);
    }
    root.overwrite_attribute("metadata_checksum",
                             checksum_text(metadata_checksum(root, table)));
    written.close();
  }

  /// Puts another data set in the place of "w".
  void replace(const std::vector<hsize_t>& shape, hid_t creation = H5P_DEFAULT) {
    edit([&](hid_t file) {
      const hid_t space =
          H5Screate_simple(static_cast<int>(shape.size()), shape.data(), nullptr);
      H5Ldelete(file, "/parameters/w", H5P_DEFAULT);
      const hid_t dataset = H5Dcreate2(file, "/parameters/w", H5T_IEEE_F64LE, space,
                                       H5P_DEFAULT, creation, H5P_DEFAULT);
      if (creation != H5P_DEFAULT) {
        H5Dwrite(dataset, H5T_NATIVE_DOUBLE, H5S_ALL, H5S_ALL, H5P_DEFAULT, values().data());
      }
      H5Dclose(dataset);
      H5Sclose(space);
    });
  }

  void expect_refused(const char* id) {
    EXPECT_THAT(message_of<InputError>([&] { load(path_); }),
                testing::AllOf(HasSubstr(id), HasSubstr(path_)));
  }

  test::TemporaryFolder folder_;
  std::string path_ = folder_ / "c.h5";
  std::uint64_t checksum_ = content_checksum<double>(values());
};

TEST_F(CheckpointTable, EditsAloneChangeNothing) {
  edit([](hid_t) {});
  EXPECT_EQ(load(path_), values());
}

TEST_F(CheckpointTable, AChunkedTensorIsReadByOneRankAlone) {
  const hid_t chunked = H5Pcreate(H5P_DATASET_CREATE);
  const hsize_t chunk = 100;
  H5Pset_chunk(chunked, 1, &chunk);
  replace({kCount}, chunked);
  H5Pclose(chunked);
  expect_refused("PL0313");
  std::vector<double> all(kCount);
  CheckpointReader(path_).read<double>(TensorGroup::kParameters, specification(), all);
  EXPECT_EQ(all, values());
}

TEST_F(CheckpointTable, ATensorWithoutElementsInTheFileIsRefused) {
  replace({10});
  expect_refused("PL0313");
}

TEST_F(CheckpointTable, AbsurdSizesTakeNoMemory) {
  for (const hsize_t extent : {hsize_t{1} << 20, hsize_t{1} << 40, hsize_t{1} << 54}) {
    replace({extent});
    expect_refused("PL0307");
  }
  // Already the table's own reader refuses that one.
  EXPECT_THAT(message_of<InputError>([&] { replace({hsize_t{1} << 30, hsize_t{1} << 29}); }),
              HasSubstr("PL0302"));
  expect_refused("PL0302");
}

TEST_F(CheckpointTable, TensorsThatOverlapAreRefused) {
  edit([](hid_t file) {
    H5Lcreate_hard(file, "/parameters/w", file, "/parameters/v", H5P_DEFAULT, H5P_DEFAULT);
  });
  // Room enough for both: it is their places that are wrong.
  std::filesystem::resize_file(path_, std::filesystem::file_size(path_) + 8 * kCount);
  expect_refused("PL0307");
  EXPECT_THAT(message_of<InputError>([&] { CheckpointReader{path_}; }), HasSubstr("overlap"));
}

/// Lines that differ.
std::string long_text(std::size_t bytes) {
  std::string text;
  for (int line = 0; text.size() < bytes; ++line) text += fmt::format("line {}\n", line);
  return text;
}

// An attribute above 64 KB does not fit into a header of HDF5, which then keeps it elsewhere.
TEST(CheckpointLimits, LongTextsComeBack) {
  const test::TemporaryFolder folder;
  CheckpointInfo info = test::unusual_info();
  info.history = long_text(300000);
  info.deck = long_text(200000);
  save(folder / "c.h5", info);
  EXPECT_EQ(load(folder / "c.h5"), values());
  for (const CheckpointInfo& found : {CheckpointReader(folder / "c.h5").info(),
                                      CheckpointLoader(folder / "c.h5", MPI_COMM_SELF).info()}) {
    EXPECT_EQ(found.history, info.history);
    EXPECT_EQ(found.deck, info.deck);
  }
  const auto size = static_cast<std::int64_t>(std::filesystem::file_size(folder / "c.h5"));
  EXPECT_LE(size, checkpoint_metadata_bytes(info, 1) + 8 * kCount + 4096);
}

// HDF5 has no checksum of texts of that length; ours covers them.
TEST(CheckpointLimits, DamageOfLongTextsIsDetected) {
  const test::TemporaryFolder folder;
  CheckpointInfo info = test::unusual_info();
  info.history = long_text(100000);
  save(folder / "c.h5", info);
  const std::string whole = test::read_file(folder / "c.h5");
  const std::size_t begin = whole.find(info.history);
  ASSERT_NE(begin, std::string::npos);
  for (std::size_t place = 0; place < info.history.size(); place += 9973) {
    std::string bytes = whole;
    bytes[begin + place] ^= 4;
    test::write_file(folder / "c.h5", bytes);
    EXPECT_THAT(message_of<InputError>([&] { load(folder / "c.h5"); }), HasSubstr("PL0307"));
  }
}

// MPI-IO takes what comes before a colon for the kind of file system.
TEST(CheckpointLimits, AnyPathWillDo) {
  const test::TemporaryFolder folder;
  for (const char* name : {"a run", "nfs:run", "12:30:00", "testfs:", "\u00fcber#%*?[]"}) {
    std::filesystem::create_directory(folder / name);
    const std::string path = folder / name + "/c d:e.h5";
    save(path);
    EXPECT_EQ(load(path), values()) << path;
    EXPECT_FALSE(std::filesystem::exists(path + ".tmp"));
  }
}

/// Changes the folder of the process for a while.
class WorkingFolder {
 public:
  explicit WorkingFolder(const std::string& path) { std::filesystem::current_path(path); }
  ~WorkingFolder() { std::filesystem::current_path(before_); }

 private:
  std::filesystem::path before_ = std::filesystem::current_path();
};

TEST(CheckpointLimits, APathThatBeginsLikeAFileSystem) {
  const test::TemporaryFolder folder;
  const WorkingFolder there(folder.path());
  for (const char* path : {"nfs:c.h5", "ufs:c.h5", "c.h5"}) {
    save(path);
    EXPECT_TRUE(std::filesystem::exists(folder / path)) << path;
    EXPECT_EQ(load(path), values());
  }
}

}  // namespace
}  // namespace pleat::io
