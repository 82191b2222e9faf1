// SPDX-License-Identifier: Apache-2.0
/// \file
/// \brief Bandwidth of writing and reading a checkpoint, against plain MPI-IO of as many bytes
/// on the same disk in the same run: scripts/bench_checkpoint calls it.
///
///     bench_checkpoint FOLDER MEGABYTES ROUNDS shards|columns automatic|on|off
///
/// Prints a line for each way: split, ranks, megabytes, way, megabytes per second of MPI-IO and of
/// the checkpoint, the median of the ratios round by round, the least and the greatest of them.
/// Writing ends when the disk has it; reading begins with an empty cache.
///
/// "shards": each rank has a contiguous part of every tensor, as of optimizer state that is cut
/// over data ranks. "columns": it has some of the columns, as under tensor parallelism.

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include <fcntl.h>
#include <unistd.h>

#include <fmt/format.h>

#include "pleat/base/error.hpp"
#include "pleat/base/runtime.hpp"
#include "pleat/comm/check_mpi.hpp"
#include "pleat/io/checkpoint.hpp"
#include "pleat/io/file_descriptor.hpp"
#include "pleat/io/hugging_face.hpp"

namespace {

using pleat::io::CheckpointHints;
using pleat::io::CheckpointLoader;
using pleat::io::CheckpointWriter;
using pleat::io::CollectiveBuffering;
using pleat::io::TensorDeclaration;
using pleat::io::TensorGroup;
using pleat::tensor::ParameterSpec;
using pleat::tensor::Range;

constexpr std::int64_t kRows = 2048;
constexpr std::int64_t kColumns = 2048;

struct Part {
  ParameterSpec box;
  Range in_box;
  std::vector<float> elements;
};

struct Setting {
  std::string folder;
  std::int64_t tensors = 0;
  bool columns = false;
  CheckpointHints hints = {};
  MPI_Comm comm = MPI_COMM_NULL;
  int rank = 0;
  int ranks = 1;

  std::int64_t bytes() const { return tensors * kRows * kColumns * std::int64_t{sizeof(float)}; }
  std::int64_t bytes_of_rank() const { return bytes() / ranks; }
  std::string path(const char* name) const { return folder + "/" + name; }
};

std::string tensor_name(std::int64_t number) { return fmt::format("layers.{}.weight", number); }

std::vector<Part> make_parts(const Setting& setting) {
  std::vector<Part> parts;
  for (std::int64_t i = 0; i < setting.tensors; ++i) {
    Part part;
    part.box.name = tensor_name(i);
    part.box.global_shape = {kRows, kColumns};
    part.box.local_shape = part.box.global_shape;
    part.box.local_offset = {0, 0};
    const std::int64_t share = kRows * kColumns / setting.ranks;
    part.in_box = {setting.rank * share, (setting.rank + 1) * share};
    if (setting.columns) {
      part.box.local_shape[1] = kColumns / setting.ranks;
      part.box.local_offset[1] = setting.rank * part.box.local_shape[1];
      part.in_box = {0, share};
    }
    part.elements.resize(static_cast<std::size_t>(share));
    for (std::size_t e = 0; e < part.elements.size(); ++e) {
      part.elements[e] = static_cast<float>(e % 1009 + static_cast<std::size_t>(i));
    }
    parts.push_back(std::move(part));
  }
  return parts;
}

/// Seconds of the slowest rank.
double seconds(const Setting& setting, const std::function<void()>& work) {
  PLEAT_CHECK_MPI(MPI_Barrier(setting.comm));
  const double begin = MPI_Wtime();
  work();
  double taken = MPI_Wtime() - begin;
  PLEAT_CHECK_MPI(MPI_Allreduce(MPI_IN_PLACE, &taken, 1, MPI_DOUBLE, MPI_MAX, setting.comm));
  return taken;
}

/// The next read has to ask the disk.
void forget(const Setting& setting, const char* name) {
  PLEAT_CHECK_MPI(MPI_Barrier(setting.comm));
  const pleat::io::FileDescriptor file(open(setting.path(name).c_str(), O_RDONLY));
  posix_fadvise(file.get(), 0, 0, POSIX_FADV_DONTNEED);
  PLEAT_CHECK_MPI(MPI_Barrier(setting.comm));
}

/// A contiguous block for each rank.
void raw(const Setting& setting, std::vector<char>& block, bool writing) {
  constexpr std::int64_t kPortion = 64 << 20;
  MPI_File file = MPI_FILE_NULL;
  const int mode = writing ? MPI_MODE_CREATE | MPI_MODE_RDWR : MPI_MODE_RDONLY;
  PLEAT_CHECK_MPI(MPI_File_open(setting.comm, setting.path("raw").c_str(), mode, MPI_INFO_NULL,
                                &file));
  const std::int64_t begin = setting.rank * setting.bytes_of_rank();
  for (std::int64_t done = 0; done < setting.bytes_of_rank(); done += kPortion) {
    const auto count =
        static_cast<int>(std::min(kPortion, setting.bytes_of_rank() - done));
    char* from = block.data() + done;
    PLEAT_CHECK_MPI(writing ? MPI_File_write_at_all(file, begin + done, from, count, MPI_BYTE,
                                                    MPI_STATUS_IGNORE)
                            : MPI_File_read_at_all(file, begin + done, from, count, MPI_BYTE,
                                                   MPI_STATUS_IGNORE));
  }
  if (writing) PLEAT_CHECK_MPI(MPI_File_sync(file));
  PLEAT_CHECK_MPI(MPI_File_close(&file));
}

enum class Way { kTogether, kAlone };

/// A file of its own for each, because replacing one takes time too.
const char* file_name(Way way) { return way == Way::kTogether ? "together.h5" : "alone.h5"; }

void write_checkpoint(const Setting& setting, const std::vector<Part>& parts, Way way) {
  std::vector<TensorDeclaration> tensors;
  for (const Part& part : parts) {
    tensors.push_back({TensorGroup::kParameters, part.box.name, part.box.global_shape,
                       pleat::io::ElementType::kF32});
  }
  pleat::io::CheckpointInfo info;
  info.model = pleat::io::read_hugging_face_config(PLEAT_TESTS_DIR "/golden/mixtral-tiny").model;
  CheckpointWriter writer(setting.path(file_name(way)), info, tensors, setting.comm, setting.hints);
  for (const Part& part : parts) {
    writer.add(TensorGroup::kParameters, part.box, part.in_box,
               std::as_bytes(std::span(part.elements)));
  }
  if (way == Way::kTogether) {
    writer.write();
  } else {
    writer.begin_alone();
    writer.write_alone();
  }
  writer.commit();
}

void read_checkpoint(const Setting& setting, std::vector<Part>& parts) {
  CheckpointLoader loader(setting.path(file_name(Way::kTogether)), setting.comm, setting.hints);
  for (Part& part : parts) {
    loader.add<float>(TensorGroup::kParameters, part.box, part.in_box,
                      std::span<float>(part.elements), true);
  }
  loader.read();
}

void remove_file(const Setting& setting, const char* name) {
  PLEAT_CHECK_MPI(MPI_Barrier(setting.comm));
  if (setting.rank == 0) std::filesystem::remove(setting.path(name));
  PLEAT_CHECK_MPI(MPI_Barrier(setting.comm));
}

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  const std::size_t half = values.size() / 2;
  return values.size() % 2 == 1 ? values[half] : (values[half - 1] + values[half]) / 2;
}

/// Bandwidths of MPI-IO and of a checkpoint, and how they compare round by round.
class Comparison {
 public:
  void add(double raw_seconds, double checkpoint_seconds, std::int64_t bytes) {
    raw_.push_back(static_cast<double>(bytes) * 1e-6 / raw_seconds);
    checkpoint_.push_back(static_cast<double>(bytes) * 1e-6 / checkpoint_seconds);
    ratio_.push_back(raw_seconds / checkpoint_seconds);
  }
  void print(const Setting& setting, const char* way) const {
    if (setting.rank != 0) return;
    fmt::print("{},{},{:.0f},{},{:.0f},{:.0f},{:.2f},{:.2f},{:.2f}\n",
               setting.columns ? "columns" : "shards", setting.ranks,
               static_cast<double>(setting.bytes()) * 1e-6, way, median(raw_),
               median(checkpoint_), median(ratio_),
               *std::min_element(ratio_.begin(), ratio_.end()),
               *std::max_element(ratio_.begin(), ratio_.end()));
  }

 private:
  std::vector<double> raw_;
  std::vector<double> checkpoint_;
  std::vector<double> ratio_;
};

/// Who comes first changes from round to round: disks have moods. \return seconds of each
std::vector<double> in_turns(const Setting& setting, int round,
                             const std::vector<std::function<void()>>& works) {
  std::vector<double> taken(works.size());
  for (std::size_t i = 0; i < works.size(); ++i) {
    const std::size_t turn = (i + static_cast<std::size_t>(round)) % works.size();
    taken[turn] = seconds(setting, works[turn]);
  }
  return taken;
}

void measure(const Setting& setting, int rounds) {
  const std::vector<const char*> files{"raw", "together.h5", "alone.h5"};
  std::vector<Part> parts = make_parts(setting);
  std::vector<char> block(static_cast<std::size_t>(setting.bytes_of_rank()), 'x');
  Comparison together;
  Comparison alone;
  Comparison reading;
  for (int round = 0; round <= rounds; ++round) {  // the first one warms up
    const auto write = [&](Way way) {
      return [&, way] { write_checkpoint(setting, parts, way); };
    };
    for (const char* name : files) remove_file(setting, name);
    const std::vector<double> writes =
        in_turns(setting, round, {[&] { raw(setting, block, true); }, write(Way::kTogether),
                                  write(Way::kAlone)});
    for (const char* name : files) forget(setting, name);
    const std::vector<double> reads =
        in_turns(setting, round, {[&] { raw(setting, block, false); },
                                  [&] { read_checkpoint(setting, parts); }});
    if (round == 0) continue;
    together.add(writes[0], writes[1], setting.bytes());
    alone.add(writes[0], writes[2], setting.bytes());
    reading.add(reads[0], reads[1], setting.bytes());
  }
  for (const char* name : files) remove_file(setting, name);
  together.print(setting, "write together");
  alone.print(setting, "write alone");
  reading.print(setting, "read");
}

CollectiveBuffering buffering_of(std::string_view word) {
  if (word == "on") return CollectiveBuffering::kOn;
  return word == "off" ? CollectiveBuffering::kOff : CollectiveBuffering::kAutomatic;
}

}  // namespace

int main(int argc, char** argv) {
  pleat::Runtime runtime(argc, argv);
  runtime.start_kokkos();
  return runtime.run([&] {
    PLEAT_REQUIRE(argc == 6, InputError, "PL0901",
                  "usage: bench_checkpoint FOLDER MEGABYTES ROUNDS shards|columns "
                  "automatic|on|off");
    Setting setting{.folder = argv[1],
                    .columns = std::string_view(argv[4]) == "columns",
                    .comm = runtime.world(),
                    .rank = runtime.rank(),
                    .ranks = runtime.ranks()};
    constexpr std::int64_t kTensorBytes = kRows * kColumns * std::int64_t{sizeof(float)};
    setting.tensors = std::max<std::int64_t>(1, std::atoll(argv[2]) * 1000000 / kTensorBytes);
    setting.hints.collective_buffering = buffering_of(argv[5]);
    measure(setting, std::atoi(argv[3]));
    return 0;
  });
}
