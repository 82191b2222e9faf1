// SPDX-License-Identifier: Apache-2.0
/// \file
/// \brief Checkpoints from one mapping to another: written after step k under A, continued under
/// B to step n, compared with the uninterrupted run on one rank. In one job of 16 ranks, of which
/// smaller mappings leave some idle.

#include <cmath>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <memory>
#include <optional>
#include <set>

#include <gtest/gtest.h>
#include <unistd.h>

#include "equivalence/mappings.hpp"
#include "pleat/comm/text.hpp"
#include "pleat/io/checkpoint.hpp"
#include "pleat/train/checkpoints.hpp"
#include "pleat/train/grid_choice.hpp"
#include "pleat/train/learning_rate.hpp"
#include "support/world.hpp"

namespace pleat::test {
namespace {

namespace fs = std::filesystem;
using io::TensorGroup;

constexpr int kAllRanks = 16;
constexpr std::int64_t kWritten = 2;  ///< k
constexpr std::int64_t kLast = 3;     ///< n
constexpr double kTolerance = 1.0e-10;

constexpr TensorGroup kTensorGroups[] = {TensorGroup::kParameters, TensorGroup::kFirstMoment,
                                         TensorGroup::kSecondMoment};

int rank_in_world() {
  int rank = 0;
  MPI_Comm_rank(world(), &rank);
  return rank;
}

/// The first so many ranks; null on the others.
class FirstRanks {
 public:
  explicit FirstRanks(int count) {
    MPI_Comm_split(world(), rank_in_world() < count ? 0 : MPI_UNDEFINED, 0, &comm_);
  }
  ~FirstRanks() {
    if (comm_ != MPI_COMM_NULL) MPI_Comm_free(&comm_);
  }
  FirstRanks(const FirstRanks&) = delete;
  FirstRanks& operator=(const FirstRanks&) = delete;
  bool include_me() const { return comm_ != MPI_COMM_NULL; }
  MPI_Comm comm() const { return comm_; }

 private:
  MPI_Comm comm_ = MPI_COMM_NULL;
};

/// A folder that all ranks know.
class SharedFolder {
 public:
  SharedFolder() {
    char path[64] = "/dev/shm/pleat-matrix-XXXXXX";
    if (rank_in_world() == 0) {
      if (access("/dev/shm", W_OK) != 0) std::strcpy(path, "/tmp/pleat-matrix-XXXXXX");
      if (mkdtemp(path) == nullptr) ADD_FAILURE() << "no folder";
    }
    MPI_Bcast(path, sizeof path, MPI_CHAR, 0, world());
    path_ = path;
  }
  ~SharedFolder() {
    MPI_Barrier(world());
    if (rank_in_world() == 0) fs::remove_all(path_);
  }
  SharedFolder(const SharedFolder&) = delete;
  SharedFolder& operator=(const SharedFolder&) = delete;
  std::string operator/(const std::string& name) const { return path_ + "/" + name; }

 private:
  std::string path_;
};

struct Mapped {
  train::RunConfig config;
  int ranks = 1;
  std::string text() const { return mapping_text(config, ranks); }
};

/// Loss, its parts, and the gradient norm of a step.
using Numbers = std::array<double, 5>;

/// A run on a mapping, here only if this rank has a part in it.
template <class T>
class MappedRun {
 public:
  explicit MappedRun(const Mapped& mapped)
      : mapped_(mapped), ranks_(mapped.ranks), data_(mapped.config.model.vocab, mapped.config.run.seed) {
    if (!ranks_.include_me()) return;
    grid_.emplace(ranks_.comm(), train::grid_shape_of(mapped_.config, mapped.ranks));
    engine_.emplace(mapped_.config, *grid_);
    engine_->initialise();
  }
  bool here() const { return engine_.has_value(); }

  /// Steps `first` to `last`; what the last one gave. Alike on every rank.
  Numbers steps(std::int64_t first, std::int64_t last) {
    Numbers numbers{};
    if (here()) {
      for (std::int64_t step = first; step <= last; ++step) {
        const double rate =
            train::learning_rate(mapped_.config.optimizer, mapped_.config.run.steps, step);
        const train::StepResult result = engine_->train_step(
            step, rate, data_, (step - 1) * mapped_.config.batch.global,
            [&](const train::StepResult&) {
              if (writing_) writing_->before_update();
              return true;
            });
        numbers = {result.losses.total(), result.losses.cross_entropy, result.losses.auxiliary,
                   result.losses.z, result.gradient_norm};
      }
    }
    MPI_Bcast(numbers.data(), static_cast<int>(numbers.size()), MPI_DOUBLE, 0, world());
    return numbers;
  }

  /// Begins to write FOLDER/step_N.h5, beside what follows.
  void begin_write(const std::string& folder, std::int64_t step) {
    if (!here()) return;
    if (grid_->rank() == 0) fs::create_directories(folder);
    MPI_Barrier(ranks_.comm());
    writing_ = std::make_unique<train::Checkpoints<T>>(mapped_.config, folder, *grid_, log_);
    io::CheckpointInfo info;
    info.format_version = io::kCheckpointFormat;
    info.step = step;
    info.next_sample = step * mapped_.config.batch.global;
    info.model = mapped_.config.model;
    info.precision = std::is_same_v<T, double> ? "fp64" : "fp32";
    writing_->start(info, *engine_);
  }
  void finish_write() {
    if (here()) {
      writing_->finish();
      writing_.reset();
    }
    MPI_Barrier(world());
  }
  void write(const std::string& folder, std::int64_t step) {
    begin_write(folder, step);
    finish_write();
  }

  void read(const std::string& path) {
    if (here()) {
      mapped_.config.checkpoint.resume = path;
      train::Checkpoints<T> checkpoints(mapped_.config, "", *grid_, log_);
      const auto resumed = checkpoints.resume(*engine_);
      EXPECT_TRUE(resumed.has_value());
    }
    MPI_Barrier(world());
  }

 private:
  Mapped mapped_;
  FirstRanks ranks_;
  RaggedTokens data_;
  Log log_{false};
  std::optional<comm::Grid> grid_;
  std::optional<train::Engine<T>> engine_;
  std::unique_ptr<train::Checkpoints<T>> writing_;
};

// --- Comparisons, on the first rank ----------------------------------------------------------

std::vector<double> elements(const io::CheckpointReader& reader, TensorGroup group,
                             const std::string& name) {
  const std::vector<std::byte> bytes = reader.read_raw(group, name);
  std::vector<double> values;
  const auto convert = [&]<class T>(T) {
    for (std::size_t at = 0; at < bytes.size(); at += sizeof(T)) {
      T value;
      std::memcpy(&value, bytes.data() + at, sizeof(T));
      values.push_back(static_cast<double>(value));
    }
  };
  if (reader.stored_type(group, name) == io::kElementTypeOf<double>) {
    convert(double{});
  } else {
    convert(float{});
  }
  return values;
}

double largest(const std::vector<double>& values) {
  double most = 0.0;
  for (const double value : values) most = std::max(most, std::abs(value));
  return most;
}

struct Worst {
  double relative = 0.0;
  std::string place = "nowhere";
};

/// The largest difference of an element relative to the largest one of its tensor, or to 1e-5
/// of its group's largest where the tensor cancels to nearly nothing.
Worst file_difference(const std::string& path, const std::string& reference) {
  Worst worst;
  if (rank_in_world() != 0) return worst;
  const io::CheckpointReader a(path);
  const io::CheckpointReader b(reference);
  for (const TensorGroup group : kTensorGroups) {
    EXPECT_EQ(a.names(group), b.names(group));
    double of_group = 0.0;
    for (const std::string& name : b.names(group)) {
      of_group = std::max(of_group, largest(elements(b, group, name)));
    }
    for (const std::string& name : b.names(group)) {
      const std::vector<double> x = elements(a, group, name);
      const std::vector<double> y = elements(b, group, name);
      const double scale = std::max(largest(y), 1.0e-5 * of_group);
      for (std::size_t i = 0; i < y.size(); ++i) {
        // Written so that NaN is a difference.
        const double found = x[i] == y[i] ? 0.0 : std::abs(x[i] - y[i]) / scale;
        if (!(found <= worst.relative)) worst = {found, io::tensor_path(group, name)};
      }
    }
  }
  return worst;
}

void expect_same_bytes(const std::string& path, const std::string& reference) {
  if (rank_in_world() != 0) return;
  const io::CheckpointReader a(path);
  const io::CheckpointReader b(reference);
  for (const TensorGroup group : kTensorGroups) {
    for (const std::string& name : b.names(group)) {
      EXPECT_TRUE(a.read_raw(group, name) == b.read_raw(group, name))
          << io::tensor_path(group, name);
    }
  }
}

void expect_near(const Numbers& a, const Numbers& b, double tolerance) {
  constexpr const char* kNames[] = {"loss", "loss_ce", "loss_aux", "loss_z", "grad_norm"};
  for (std::size_t i = 0; i < a.size(); ++i) {
    EXPECT_LE(std::abs(a[i] - b[i]), tolerance * std::abs(b[i])) << kNames[i];
  }
}

// --- Mappings --------------------------------------------------------------------------------

/// Evenly spaced ones of all legal mappings, which end in other schedules, dispatchers and
/// shardings.
void add_mappings(const train::RunConfig& config, int ranks, std::size_t count,
                  std::vector<Mapped>& all) {
  const auto legal = all_mappings(config, ranks);
  ASSERT_FALSE(legal.empty());
  for (std::size_t i = 0; i < count; ++i) {
    all.push_back({legal[(2 * i + 1) * legal.size() / (2 * count)], ranks});
  }
}

std::vector<Mapped> chosen_mappings(const train::RunConfig& config) {
  std::vector<Mapped> all;
  add_mappings(config, 1, 1, all);
  add_mappings(config, 2, 3, all);
  add_mappings(config, 4, 5, all);
  add_mappings(config, 8, 5, all);
  add_mappings(config, 16, 6, all);
  return all;
}

train::RunConfig with_router_bias() {
  train::RunConfig config = small_mixtral();
  config.model.moe.score = plan::RouterScore::kSigmoid;
  config.model.moe.groups = 4;
  config.model.moe.top_groups = 2;
  config.model.moe.routed_scale = 2.5;
  config.model.moe.bias_update_rate = 0.01;
  return config;
}

/// How many pairs differ in each respect.
class Coverage {
 public:
  void add(const Mapped& a, const Mapped& b) {
    const train::ParallelSection& p = a.config.parallel;
    const train::ParallelSection& q = b.config.parallel;
    const auto data = [](const Mapped& m) {
      return m.ranks / m.config.parallel.pipeline / m.config.parallel.context /
             m.config.parallel.tensor;
    };
    const bool differs[] = {p.pipeline != q.pipeline, p.context != q.context,
                            p.tensor != q.tensor,     p.expert != q.expert,
                            p.expert_tensor != q.expert_tensor,
                            data(a) != data(b),       p.sharding != q.sharding,
                            p.dispatcher != q.dispatcher, p.chunks != q.chunks,
                            a.ranks != b.ranks};
    for (std::size_t i = 0; i < std::size(differs); ++i) counts_[i] += differs[i] ? 1 : 0;
    ++pairs_;
  }
  void expect_enough(int pairs) const {
    constexpr const char* kNames[] = {"pipeline", "context",  "tensor",     "expert",
                                      "etp",      "data",     "sharding",   "dispatcher",
                                      "chunks",   "the rank count"};
    EXPECT_GE(pairs_, pairs);
    for (std::size_t i = 0; i < std::size(kNames); ++i) {
      EXPECT_GE(counts_[i], 4) << "too few pairs differ in " << kNames[i];
    }
  }
  int pairs() const { return pairs_; }

 private:
  std::array<int, 10> counts_{};
  int pairs_ = 0;
};

// --- The matrix ------------------------------------------------------------------------------

class Matrix {
 public:
  Matrix(const train::RunConfig& config, const std::vector<Mapped>& mappings)
      : mappings_(mappings) {
    MappedRun<double> reference({config, 1});
    reference.steps(1, kWritten);
    reference.write(folder_ / "reference", kWritten);
    numbers_ = reference.steps(kWritten + 1, kLast);
    reference.write(folder_ / "reference", kLast);
  }

  /// Writes under every mapping, beside the next step, which is compared too.
  void write_all() {
    for (std::size_t i = 0; i < mappings_.size(); ++i) {
      SCOPED_TRACE(mappings_[i].text());
      MappedRun<double> run(mappings_[i]);
      run.steps(1, kWritten);
      run.begin_write(folder_of(i), kWritten);
      expect_near(run.steps(kWritten + 1, kLast), numbers_, kTolerance);
      run.finish_write();
      note(file_difference(file_of(i), reference(kWritten)));
    }
  }

  /// Continues under mapping b what each of some others wrote.
  void continue_under(std::size_t b, const std::vector<std::size_t>& writers) {
    MappedRun<double> run(mappings_[b]);
    for (const std::size_t a : writers) {
      SCOPED_TRACE("from " + mappings_[a].text() + "\nto " + mappings_[b].text());
      run.read(file_of(a));
      run.write(folder_ / "again", kWritten);
      expect_same_bytes(folder_ / ("again/" + io::checkpoint_name(kWritten)), file_of(a));
      expect_near(run.steps(kWritten + 1, kLast), numbers_, kTolerance);
      run.write(folder_ / "again", kLast);
      note(file_difference(folder_ / ("again/" + io::checkpoint_name(kLast)), reference(kLast)));
      coverage_.add(mappings_[a], mappings_[b]);
    }
  }

  const Coverage& coverage() const { return coverage_; }
  double largest_difference() const { return largest_; }

 private:
  std::string folder_of(std::size_t i) const { return folder_ / std::to_string(i); }
  std::string file_of(std::size_t i) const {
    return folder_of(i) + "/" + io::checkpoint_name(kWritten);
  }
  std::string reference(std::int64_t step) const {
    return folder_ / ("reference/" + io::checkpoint_name(step));
  }
  void note(const Worst& worst) {
    EXPECT_LE(worst.relative, kTolerance) << "in " << worst.place;
    largest_ = std::max(largest_, worst.relative);
  }

  SharedFolder folder_;
  std::vector<Mapped> mappings_;
  Numbers numbers_{};
  Coverage coverage_;
  double largest_ = 0.0;
};

int ranks_of_world() {
  int ranks = 0;
  MPI_Comm_size(world(), &ranks);
  return ranks;
}

void expect_matrix(const train::RunConfig& config, const std::vector<Mapped>& mappings) {
  ASSERT_EQ(ranks_of_world(), kAllRanks);
  Matrix matrix(config, mappings);
  matrix.write_all();
  const std::size_t count = mappings.size();
  for (std::size_t b = 0; b < count; ++b) {
    matrix.continue_under(b, {(b + 7) % count, (3 * b + count / 2 + 1) % count});
  }
  matrix.coverage().expect_enough(40);
  if (rank_in_world() == 0) {
    std::printf("%d pairs of %zu mappings, largest difference %.1e\n", matrix.coverage().pairs(),
                count, matrix.largest_difference());
  }
}

TEST(Matrix, SmallMixtral) { expect_matrix(small_mixtral(), chosen_mappings(small_mixtral())); }

TEST(Matrix, SmallQwen2Moe) {
  expect_matrix(small_qwen2_moe(), chosen_mappings(small_qwen2_moe()));
}

TEST(Matrix, RouterBias) {
  std::vector<Mapped> mappings;
  add_mappings(with_router_bias(), 1, 1, mappings);
  add_mappings(with_router_bias(), 8, 3, mappings);
  Matrix matrix(with_router_bias(), mappings);
  matrix.write_all();
  for (std::size_t b = 0; b < mappings.size(); ++b) {
    matrix.continue_under(b, {(b + 1) % mappings.size()});
  }
}

// --- From one precision to another -----------------------------------------------------------

/// What one mapping wrote in precision From is continued in precision To, on one rank and on
/// another mapping.
template <class From, class To>
void expect_conversion(double tolerance) {
  const SharedFolder folder;
  const auto mappings = chosen_mappings(small_qwen2_moe());
  for (const auto& [writer, reader] : {std::pair{5, 16}, std::pair{12, 2}, std::pair{17, 8}}) {
    SCOPED_TRACE(mappings[writer].text() + "\nto " + mappings[reader].text());
    MappedRun<From> from(mappings[writer]);
    from.steps(1, kWritten);
    from.write(folder / "from", kWritten);
    const std::string file = folder / ("from/" + io::checkpoint_name(kWritten));
    MappedRun<To> one({small_qwen2_moe(), 1});
    one.read(file);
    one.write(folder / "one", kWritten);
    MappedRun<To> to(mappings[reader]);
    to.read(file);
    to.write(folder / "to", kWritten);
    // Each element is rounded by itself: no tolerance between mappings.
    expect_same_bytes(folder / ("to/" + io::checkpoint_name(kWritten)),
                      folder / ("one/" + io::checkpoint_name(kWritten)));
    const double rounding = sizeof(To) > sizeof(From) ? 0.0 : 1.0e-7;
    EXPECT_LE(file_difference(folder / ("to/" + io::checkpoint_name(kWritten)), file).relative,
              rounding);
    expect_near(to.steps(kWritten + 1, kLast), one.steps(kWritten + 1, kLast), tolerance);
    one.write(folder / "one", kLast);
    to.write(folder / "to", kLast);
    const Worst worst = file_difference(folder / ("to/" + io::checkpoint_name(kLast)),
                                        folder / ("one/" + io::checkpoint_name(kLast)));
    EXPECT_LE(worst.relative, tolerance) << worst.place;
  }
}

TEST(Conversion, SingleToDouble) { expect_conversion<float, double>(kTolerance); }
TEST(Conversion, DoubleToSingle) { expect_conversion<double, float>(1.0e-3); }

}  // namespace
}  // namespace pleat::test
