// SPDX-License-Identifier: Apache-2.0
#include <limits>
#include <numeric>

#include "files/support.hpp"
#include "pleat/io/hdf5.hpp"

namespace pleat::io {
namespace {

using test::message_of;
using testing::HasSubstr;

TEST(Hdf5, AttributesByName) {
  const test::TemporaryFolder folder;
  const std::string path = folder / "a.h5";
  const std::string deck(200'000, 'x');  // beyond the 64 KiB of an object header
  const std::vector<std::int64_t> steps{3, -1, std::int64_t{1} << 60};
  {
    Hdf5File file = Hdf5File::create(path, MPI_COMM_SELF);
    Hdf5Group root = file.root();
    root.set_attribute("text", "gr\u00fc\u00dfe");
    root.set_attribute("empty", "");
    root.set_attribute("deck", std::string_view(deck));
    root.set_attribute("count", std::numeric_limits<std::int64_t>::min());
    root.set_attribute("rate", 0.1);
    root.set_attribute("rate", 0.2);  // replaces
    root.set_attribute("steps", std::span<const std::int64_t>(steps));
    file.close();
  }
  const Hdf5File file = Hdf5File::open_read(path);
  const Hdf5Group root = file.root();
  EXPECT_EQ(root.string_attribute("text"), "gr\u00fc\u00dfe");
  EXPECT_EQ(root.string_attribute("empty"), "");
  EXPECT_EQ(root.string_attribute("deck"), deck);
  EXPECT_EQ(root.int64_attribute("count"), std::numeric_limits<std::int64_t>::min());
  EXPECT_EQ(root.double_attribute("rate"), 0.2);
  EXPECT_EQ(root.int64_array_attribute("steps"), steps);
  EXPECT_EQ(root.attribute_text("steps"), "3 -1 1152921504606846976");
  EXPECT_EQ(root.attribute_names().size(), 6U);
  EXPECT_FALSE(root.has_attribute("absent"));
  EXPECT_THAT(message_of<InputError>([&] { root.string_attribute("absent"); }),
              HasSubstr("'absent' is missing"));
  EXPECT_THAT(message_of<InputError>([&] { root.int64_attribute("rate"); }),
              HasSubstr("PL0302"));
}

// Written by h5py: variable-length strings, chunks, deflate and shuffle.
TEST(Hdf5, ReadsWhatOthersWrote) {
  const Hdf5File file = Hdf5File::open_read(test::golden("qwen3moe-tiny/golden.h5"));
  const Hdf5Group root = file.root();
  EXPECT_EQ(root.string_attribute("model_type"), "qwen3_moe");
  EXPECT_EQ(root.int64_attribute("hidden"), 32);
  EXPECT_EQ(root.double_attribute("aux_loss_coeff"), 0.01);
  EXPECT_EQ(root.int64_array_attribute("moe_layers"), (std::vector<std::int64_t>{0, 1}));
  EXPECT_THAT(root.children(), testing::Contains("forward"));
  const Hdf5Dataset loss = root.dataset("loss/total");
  EXPECT_TRUE(loss.shape().empty());
  EXPECT_NEAR(loss.read_all<double>().front(), 5.1337, 1e-4);
  EXPECT_EQ(root.dataset("inputs/input_ids").shape(), (tensor::Shape{4, 32}));
  EXPECT_EQ(root.dataset("inputs/input_ids").kind(), Hdf5Kind::kInteger);
  EXPECT_THAT(message_of<InputError>([&] { root.dataset("loss/absent"); }),
              HasSubstr("'/loss/absent'"));
  EXPECT_THAT(message_of<InputError>([&] { loss.read_all<std::int32_t>(); }),
              HasSubstr("holds float64, expected integers"));
}

TEST(Hdf5, BoxesAndConversions) {
  const test::TemporaryFolder folder;
  std::vector<double> values(24);
  std::iota(values.begin(), values.end(), 0.0);
  Hdf5File written = Hdf5File::create(folder / "a.h5", MPI_COMM_SELF);
  written.root().write_dataset<double>("deep/er/x", {2, 3, 4}, values);
  written.root().write_dataset<double>("scalar", {},
                                       std::span<const double>(values).last(1));
  written.close();
  const Hdf5File file = Hdf5File::open_read(folder / "a.h5");
  const Hdf5Dataset x = file.root().dataset("deep/er/x");
  std::vector<float> box(4);
  x.read<float>({1, 1, 2}, {1, 2, 2}, box);
  EXPECT_EQ(box, (std::vector<float>{18, 19, 22, 23}));
  EXPECT_EQ(file.root().dataset("scalar").read_all<float>(), std::vector<float>{23.0F});
}

TEST(Hdf5, IntegersThatDoNotFitAreErrors) {
  const test::TemporaryFolder folder;
  const std::vector<std::int64_t> large{1, std::int64_t{1} << 31};
  const std::vector<std::int32_t> small{7, -1};
  Hdf5File written = Hdf5File::create(folder / "a.h5", MPI_COMM_SELF);
  written.root().write_dataset<std::int64_t>("large", {2}, large);
  written.root().write_dataset<std::int32_t>("small", {2}, small);
  written.close();
  const Hdf5File file = Hdf5File::open_read(folder / "a.h5");
  EXPECT_EQ(file.root().dataset("large").read_all<std::int64_t>(), large);
  EXPECT_EQ(file.root().dataset("small").read_all<std::int64_t>(),
            (std::vector<std::int64_t>{7, -1}));
  EXPECT_THAT(
      message_of<InputError>([&] { file.root().dataset("large").read_all<int>(); }),
      HasSubstr("PL0304"));
  EXPECT_THAT(message_of<InputError>(
                  [&] { file.root().dataset("small").read_all<std::uint8_t>(); }),
              HasSubstr("out of range"));
}

TEST(Hdf5, MissingAndForeignFiles) {
  const test::TemporaryFolder folder;
  EXPECT_THAT(message_of<InputError>([&] { Hdf5File::open_read(folder / "none.h5"); }),
              HasSubstr("No such file"));
  EXPECT_THAT(message_of<InputError>([&] { Hdf5File::open_read(folder.path()); }),
              HasSubstr("is not a file"));
  test::write_file(folder / "text.h5", "hello");
  EXPECT_THAT(message_of<InputError>([&] { Hdf5File::open_read(folder / "text.h5"); }),
              HasSubstr("not an HDF5 file"));
  EXPECT_THAT(message_of<IoError>(
                  [&] { Hdf5File::create(folder / "no/such/a.h5", MPI_COMM_SELF); }),
              HasSubstr("PL0303"));
}

}  // namespace
}  // namespace pleat::io
