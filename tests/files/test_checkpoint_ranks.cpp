// SPDX-License-Identifier: Apache-2.0
/// \file
/// \brief Checkpoints that all ranks write and read together, each a part of its own.

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <exception>
#include <list>
#include <optional>
#include <thread>

#include <dlfcn.h>
#include <pthread.h>
#include <sys/statvfs.h>

#include "files/support.hpp"
#include "pleat/io/checksum.hpp"
#include "support/world.hpp"

namespace {
bool no_threads = false;  ///< as where a limit of processes is reached
bool no_room = false;     ///< on any file system
}

/// Takes the place of the C library's for the whole test, as the next one does.
extern "C" int statvfs(const char* path, struct statvfs* result) noexcept {
  using Function = int (*)(const char*, struct statvfs*);
  static const auto original = reinterpret_cast<Function>(dlsym(RTLD_NEXT, "statvfs"));
  const int answer = original(path, result);
  if (no_room) result->f_bavail = 0;
  return answer;
}

extern "C" int pthread_create(pthread_t* thread, const pthread_attr_t* attributes,
                              void* (*start)(void*), void* argument) noexcept {
  if (no_threads) return EAGAIN;
  using Function = int (*)(pthread_t*, const pthread_attr_t*, void* (*)(void*), void*);
  static const auto original =
      reinterpret_cast<Function>(dlsym(RTLD_NEXT, "pthread_create"));
  return original(thread, attributes, start, argument);
}

namespace pleat::io {
namespace {

using test::Dice;
using test::message_of;
using testing::HasSubstr;

std::uint64_t bits_of(std::size_t tensor, std::int64_t index) {
  return checksum_mix(1000003 * tensor + static_cast<std::uint64_t>(index) + 1);
}

double value_of(std::size_t tensor, std::int64_t index) {
  return static_cast<double>(bits_of(tensor, index) >> 40);  // exact in 32 bits too
}

/// Tensors of random shapes and types; those of 16 bits are left to another test.
std::vector<TensorDeclaration> random_tensors(Dice& dice) {
  std::vector<TensorDeclaration> tensors;
  for (std::size_t i = 0; i < 9; ++i) {
    tensor::Shape shape(1 + dice.below(3));
    for (std::int64_t& extent : shape) extent = 1 + static_cast<std::int64_t>(dice.below(16));
    tensors.push_back({TensorGroup::kParameters, "t" + std::to_string(i), shape,
                       dice.below(2) == 0 ? ElementType::kF64 : ElementType::kF32});
  }
  return tensors;
}

/// A part of a tensor that one rank has.
struct Part {
  std::size_t tensor = 0;
  tensor::ParameterSpec box;
  tensor::Range in_box;
  int rank = 0;
};

/// Cuts each tensor along a random dimension into boxes and each box into ranges, for random
/// ranks; some get nothing.
std::vector<Part> random_split(const std::vector<TensorDeclaration>& tensors, int ranks,
                               Dice& dice) {
  std::vector<Part> parts;
  for (std::size_t t = 0; t < tensors.size(); ++t) {
    const tensor::Shape& shape = tensors[t].shape;
    const std::size_t dim = dice.below(shape.size());
    for (std::int64_t begin = 0; begin < shape[dim];) {
      const auto rest = static_cast<std::uint64_t>(shape[dim] - begin);
      tensor::ParameterSpec box = test::parameter(tensors[t].name, shape);
      box.local_offset[dim] = begin;
      box.local_shape[dim] = 1 + static_cast<std::int64_t>(dice.below(rest));
      begin += box.local_shape[dim];
      for (std::int64_t from = 0; from < box.local_count();) {
        const auto left = static_cast<std::uint64_t>(box.local_count() - from);
        const auto to = from + 1 + static_cast<std::int64_t>(dice.below(left));
        const auto rank = static_cast<int>(dice.below(static_cast<std::uint64_t>(ranks)));
        parts.push_back({t, box, {from, to}, rank});
        from = to;
      }
    }
  }
  return parts;
}

/// Index in the whole tensor of an element of a box, by plain division.
std::int64_t index_in_tensor(const tensor::ParameterSpec& box, std::int64_t in_box) {
  std::vector<std::int64_t> place(box.local_shape.size());
  for (std::size_t dim = place.size(); dim-- > 0;) {
    place[dim] = box.local_offset[dim] + in_box % box.local_shape[dim];
    in_box /= box.local_shape[dim];
  }
  std::int64_t index = 0;
  for (std::size_t dim = 0; dim < place.size(); ++dim) {
    index = index * box.global_shape[dim] + place[dim];
  }
  return index;
}

std::vector<double> expected_values(const Part& part) {
  std::vector<double> values;
  for (std::int64_t i = part.in_box.begin; i < part.in_box.end; ++i) {
    values.push_back(value_of(part.tensor, index_in_tensor(part.box, i)));
  }
  return values;
}

/// A folder that all ranks see, made by the first one.
class SharedFolder {
 public:
  SharedFolder() {
    MPI_Comm_rank(test::world(), &rank_);
    if (rank_ == 0) folder_.emplace();
    std::array<char, 256> path{};
    if (rank_ == 0) folder_->path().copy(path.data(), path.size() - 1);
    MPI_Bcast(path.data(), static_cast<int>(path.size()), MPI_CHAR, 0, test::world());
    path_ = path.data();
  }
  ~SharedFolder() { MPI_Barrier(test::world()); }
  std::string operator/(const std::string& name) const { return path_ + "/" + name; }
  std::vector<std::string> names() const {
    MPI_Barrier(test::world());
    std::vector<std::string> names;
    for (const auto& entry : std::filesystem::directory_iterator(path_)) {
      names.push_back(entry.path().filename().string());
    }
    MPI_Barrier(test::world());
    return names;
  }

 private:
  int rank_ = 0;
  std::optional<test::TemporaryFolder> folder_;
  std::string path_;
};

/// How a checkpoint is written.
struct Way {
  const char* name;
  CollectiveBuffering buffering = CollectiveBuffering::kAutomatic;
  bool alone = false;  ///< write_alone() and agree() in place of write()
};

class CheckpointRanks : public testing::TestWithParam<Way> {
 protected:
  CheckpointRanks() {
    MPI_Comm_rank(test::world(), &rank_);
    MPI_Comm_size(test::world(), &ranks_);
    hints_.collective_buffering = GetParam().buffering;
    hints_.round_bytes = 2000;  // many rounds
    hints_.buffer_bytes = 4096;
    hints_.alignment = 512;
  }

  /// Adds what belongs to this rank. \return the elements, which must stay
  std::list<std::vector<std::byte>> add_parts(CheckpointWriter& writer,
                                              const std::vector<TensorDeclaration>& tensors,
                                              const std::vector<Part>& parts) {
    std::list<std::vector<std::byte>> kept;
    for (const Part& part : parts) {
      if (part.rank != rank_) continue;
      const std::vector<double> values = expected_values(part);
      const ElementType type = tensors[part.tensor].type;
      std::vector<std::byte>& bytes = kept.emplace_back(values.size() * element_size(type));
      encode_elements<double>(type, values, bytes);
      writer.add(TensorGroup::kParameters, part.box, part.in_box, bytes);
    }
    return kept;
  }

  void write(const std::string& path, const std::vector<TensorDeclaration>& tensors,
             const std::vector<Part>& parts) {
    CheckpointWriter writer(path, test::unusual_info(), tensors, test::world(), hints_);
    const auto kept = add_parts(writer, tensors, parts);
    fill(writer);
    writer.commit();
  }

  void fill(CheckpointWriter& writer) {
    if (!GetParam().alone) return writer.write();
    writer.begin_alone();
    writer.write_alone();
  }

  template <class T>
  void expect_loaded(const std::string& path, const std::vector<Part>& parts) {
    CheckpointLoader loader(path, test::world(), hints_);
    std::list<std::vector<T>> kept;
    for (const Part& part : parts) {
      if (part.rank != rank_) continue;
      auto& values = kept.emplace_back(static_cast<std::size_t>(part.in_box.size()));
      loader.add<T>(TensorGroup::kParameters, part.box, part.in_box, values, true);
    }
    loader.read();
    auto values = kept.begin();
    for (const Part& part : parts) {
      if (part.rank != rank_) continue;
      const std::vector<double> expected = expected_values(part);
      ASSERT_TRUE(std::equal(values->begin(), values->end(), expected.begin()))
          << part.box.name;
      ++values;
    }
  }

  int rank_ = 0;
  int ranks_ = 1;
  CheckpointHints hints_;
};

TEST_P(CheckpointRanks, AnySplitIsReadUnderAnyOther) {
  const SharedFolder folder;
  Dice dice(1);
  for (int round = 0; round < 4; ++round) {
    const std::vector<TensorDeclaration> tensors = random_tensors(dice);
    const std::string path = folder / ("c" + std::to_string(round) + ".h5");
    write(path, tensors, random_split(tensors, ranks_, dice));
    CheckpointReader(path).verify_all();
    expect_loaded<double>(path, random_split(tensors, ranks_, dice));
    expect_loaded<float>(path, random_split(tensors, ranks_, dice));
  }
}

// HDF5 alone sees what MPI-IO wrote.
TEST_P(CheckpointRanks, TheFileIsAnOrdinaryHdf5File) {
  const SharedFolder folder;
  Dice dice(2);
  const std::vector<TensorDeclaration> tensors = random_tensors(dice);
  write(folder / "c.h5", tensors, random_split(tensors, ranks_, dice));
  const Hdf5File file = Hdf5File::open_read(folder / "c.h5");
  for (std::size_t t = 0; t < tensors.size(); ++t) {
    const Hdf5Dataset dataset = file.root().dataset("parameters/" + tensors[t].name);
    ASSERT_EQ(dataset.shape(), tensors[t].shape);
    const auto values = dataset.read_all<double>();
    for (std::size_t i = 0; i < values.size(); ++i) {
      ASSERT_EQ(values[i], value_of(t, static_cast<std::int64_t>(i))) << tensors[t].name;
    }
  }
}

// The same content gives the same file, whoever wrote it.
TEST_P(CheckpointRanks, TheSplitLeavesNoTrace) {
  const SharedFolder folder;
  Dice dice(3);
  const std::vector<TensorDeclaration> tensors = random_tensors(dice);
  write(folder / "a.h5", tensors, random_split(tensors, ranks_, dice));
  write(folder / "b.h5", tensors, random_split(tensors, 1, dice));
  EXPECT_EQ(test::read_file(folder / "a.h5"), test::read_file(folder / "b.h5"));
  MPI_Barrier(test::world());
}

// Copies of a replicated tensor are read by several ranks, one of which counts.
TEST_P(CheckpointRanks, ReplicasAreReadWithoutBeingCounted) {
  const SharedFolder folder;
  Dice dice(4);
  const std::vector<TensorDeclaration> tensors = random_tensors(dice);
  write(folder / "c.h5", tensors, random_split(tensors, ranks_, dice));
  CheckpointLoader loader(folder / "c.h5", test::world(), hints_);
  std::list<std::vector<double>> kept;
  for (std::size_t t = 0; t < tensors.size(); ++t) {
    const tensor::ParameterSpec whole = test::parameter(tensors[t].name, tensors[t].shape);
    auto& values = kept.emplace_back(static_cast<std::size_t>(whole.local_count()));
    const bool counted = rank_ == static_cast<int>(t) % ranks_;
    loader.add<double>(TensorGroup::kParameters, whole, {0, whole.local_count()}, values,
                       counted);
  }
  loader.read();
  std::size_t t = 0;
  for (const std::vector<double>& values : kept) {
    for (std::size_t i = 0; i < values.size(); ++i) {
      ASSERT_EQ(values[i], value_of(t, static_cast<std::int64_t>(i)));
    }
    ++t;
  }
}

// Damage to the part of one rank is told to all, in the same words.
TEST_P(CheckpointRanks, DamageIsReportedAlike) {
  const SharedFolder folder;
  Dice dice(5);
  const std::vector<TensorDeclaration> tensors = random_tensors(dice);
  const std::string path = folder / "c.h5";
  write(path, tensors, random_split(tensors, ranks_, dice));
  const StoredTensors stored = CheckpointReader(path).tensors();
  MPI_Barrier(test::world());
  if (rank_ == 0) {
    std::string bytes = test::read_file(path);
    bytes[static_cast<std::size_t>(stored.at("/parameters/t4").offset)] ^= 1;
    test::write_file(path, bytes);
  }
  MPI_Barrier(test::world());
  const std::string text =
      message_of<InputError>([&] { expect_loaded<double>(path, random_split(tensors, ranks_, dice)); });
  EXPECT_THAT(text, HasSubstr("PL0308"));
  EXPECT_THAT(text, HasSubstr(path + ": /parameters/t4"));
  if (rank_ == 0) std::filesystem::resize_file(path, 3000);
  MPI_Barrier(test::world());
  EXPECT_THAT(message_of<InputError>([&] { CheckpointLoader(path, test::world()); }),
              HasSubstr("PL0301"));
  EXPECT_THAT(message_of<InputError>([&] { CheckpointLoader(folder / "no", test::world()); }),
              HasSubstr("PL0301"));
}

// What write() has not taken yet may change after detach(), and does not reach the file.
TEST_P(CheckpointRanks, DetachedElementsMayChange) {
  const SharedFolder folder;
  Dice dice(6);
  const std::vector<TensorDeclaration> tensors = random_tensors(dice);
  for (int attempt = 0; attempt < 4; ++attempt) {
    const std::vector<Part> parts = random_split(tensors, ranks_, dice);
    const std::string path = folder / "c.h5";
    CheckpointWriter writer(path, test::unusual_info(), tensors, test::world(), hints_);
    auto kept = add_parts(writer, tensors, parts);
    if (attempt == 0) writer.detach();  // before write() as well
    std::thread background([&] { fill(writer); });
    std::this_thread::sleep_for(std::chrono::microseconds(500 * attempt * (rank_ + 1)));
    writer.detach();
    for (std::vector<std::byte>& bytes : kept) std::fill(bytes.begin(), bytes.end(), std::byte{7});
    background.join();
    writer.commit();
    expect_loaded<double>(path, random_split(tensors, ranks_, dice));
  }
}

// The round that is being written still reads the memory: it may change only afterwards.
TEST_P(CheckpointRanks, DetachWaitsForTheRoundUnderWay) {
  const SharedFolder folder;
  hints_.round_bytes = 8 << 20;
  hints_.buffer_bytes = 8 << 20;
  const std::int64_t share = hints_.round_bytes / 8;
  const tensor::ParameterSpec whole = test::parameter("t", {share * ranks_});
  const tensor::Range mine{share * rank_, share * (rank_ + 1)};
  for (int attempt = 0; attempt < 4; ++attempt) {
    CheckpointWriter writer(
        folder / "c.h5", test::unusual_info(),
        {{TensorGroup::kParameters, "t", whole.global_shape, ElementType::kF64}},
        test::world(), hints_);
    std::vector<double> values(static_cast<std::size_t>(share), 1.0);
    writer.add(TensorGroup::kParameters, whole, mine, std::as_bytes(std::span(values)));
    std::thread background([&] { fill(writer); });
    std::this_thread::sleep_for(std::chrono::microseconds(700 * attempt));
    writer.detach();
    std::fill(values.begin(), values.end(), 7.0);
    background.join();
    writer.commit();
    CheckpointLoader loader(folder / "c.h5", test::world(), hints_);
    loader.add<double>(TensorGroup::kParameters, whole, mine, values, true);
    loader.read();
    EXPECT_EQ(std::count(values.begin(), values.end(), 1.0), share);
  }
}

// A rank that cannot write makes all ranks fail, and only this checkpoint.
TEST_P(CheckpointRanks, AFailureOfOneRankIsTheFailureOfAll) {
  const SharedFolder folder;
  Dice dice(7);
  const std::vector<TensorDeclaration> tensors = random_tensors(dice);
  const std::vector<Part> parts = random_split(tensors, ranks_, dice);
  write(folder / "old.h5", tensors, parts);
  const std::string before = test::read_file(folder / "old.h5");
  hints_.aggregators = ranks_;
  const auto save = [&] {
    CheckpointWriter writer(folder / "new.h5", test::unusual_info(), tensors, test::world(),
                            hints_);
    const auto kept = add_parts(writer, tensors, parts);
    std::optional<test::FileSizeLimit> full;
    if (rank_ == ranks_ - 1) full.emplace(4096 + before.size() / 2);
    std::exception_ptr here;
    try {
      fill(writer);
    } catch (const IoError&) {
      here = std::current_exception();
    }
    if (!GetParam().alone && here) std::rethrow_exception(here);
    EXPECT_EQ(here != nullptr, rank_ == ranks_ - 1);
    writer.agree(here);
  };
  const std::string text = message_of<IoError>(save);
  EXPECT_THAT(text, HasSubstr("PL0303"));
  EXPECT_THAT(text, HasSubstr("new.h5.tmp: cannot write"));
  EXPECT_THAT(folder.names(), testing::ElementsAre("old.h5"));
  EXPECT_EQ(test::read_file(folder / "old.h5"), before);
  hints_.aggregators = 0;
  write(folder / "new.h5", tensors, parts);  // the next attempt is not disturbed
  expect_loaded<double>(folder / "new.h5", parts);
}

// It is done without it then.
TEST_P(CheckpointRanks, WithoutRoomForSharedMemory) {
  const SharedFolder folder;
  Dice dice(9);
  const std::vector<TensorDeclaration> tensors = random_tensors(dice);
  no_room = rank_ == 0;
  write(folder / "c.h5", tensors, random_split(tensors, ranks_, dice));
  expect_loaded<double>(folder / "c.h5", random_split(tensors, ranks_, dice));
  no_room = false;
}

// Which the others, who wait for it in shared memory, learn.
TEST_P(CheckpointRanks, ARankWithoutThreadsIsTheFailureOfAll) {
  const bool gathers =
      ranks_ > 1 && hints_.collective_buffering == CollectiveBuffering::kAutomatic;
  if (!gathers) return;  // nothing of it is read on a thread
  const SharedFolder folder;
  Dice dice(8);
  const std::vector<TensorDeclaration> tensors = random_tensors(dice);
  const std::vector<Part> parts = random_split(tensors, ranks_, dice);
  write(folder / "c.h5", tensors, parts);
  for (int rank = 0; rank < ranks_; ++rank) {
    no_threads = rank_ == rank;
    EXPECT_THAT(message_of<InternalError>(
                    [&] { expect_loaded<double>(folder / "c.h5", parts); }),
                HasSubstr("PL0103"));
    no_threads = false;
  }
  expect_loaded<double>(folder / "c.h5", parts);
}

TEST_P(CheckpointRanks, AFileThatCannotBeMadeFailsAlike) {
  const SharedFolder folder;
  EXPECT_THAT(message_of<IoError>([&] {
                CheckpointWriter(folder / "no/c.h5", test::unusual_info(), {},
                                 test::world(), hints_);
              }),
              HasSubstr("no/c.h5"));
}

INSTANTIATE_TEST_SUITE_P(
    Ways, CheckpointRanks,
    testing::Values(Way{"Automatic"}, Way{"On", CollectiveBuffering::kOn},
                    Way{"Off", CollectiveBuffering::kOff},
                    Way{.name = "Alone", .alone = true}),
    [](const testing::TestParamInfo<Way>& info) { return std::string(info.param.name); });

}  // namespace
}  // namespace pleat::io
