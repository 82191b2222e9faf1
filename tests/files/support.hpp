// SPDX-License-Identifier: Apache-2.0
#pragma once

/// \file
/// \brief What the tests of files share.

#include <csignal>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include <sys/resource.h>
#include <unistd.h>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "pleat/base/random.hpp"
#include "pleat/io/checkpoint.hpp"
#include "pleat/tensor/flat_tensors.hpp"

namespace pleat::test {

/// \brief A folder that is there for one test.
class TemporaryFolder {
 public:
  TemporaryFolder() : path_(place() + "/pleat-test-XXXXXX") {
    if (mkdtemp(path_.data()) == nullptr) ADD_FAILURE() << "no temporary folder";
  }
  ~TemporaryFolder() { std::filesystem::remove_all(path_); }
  TemporaryFolder(const TemporaryFolder&) = delete;
  TemporaryFolder& operator=(const TemporaryFolder&) = delete;
  std::string operator/(const std::string& name) const { return path_ + "/" + name; }
  const std::string& path() const { return path_; }

 private:
  /// In memory where there is such a place: the damage tests write thousands of files.
  static std::string place() {
    const bool memory = access("/dev/shm", W_OK | X_OK) == 0;
    return memory ? "/dev/shm" : std::filesystem::temp_directory_path().string();
  }

  std::string path_;
};

inline std::string read_file(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

inline void write_file(const std::string& path, const std::string& text) {
  std::ofstream(path, std::ios::binary) << text;
}

inline std::string golden(const std::string& name) {
  return std::string(PLEAT_TESTS_DIR) + "/golden/" + name;
}

inline const std::vector<std::string>& golden_cases() {
  static const std::vector<std::string> kCases{"mixtral-tiny", "mixtral-tiny-noaux",
                                               "qwen2moe-tiny", "qwen3moe-tiny"};
  return kCases;
}

/// \brief The message of the error that the call throws; fails the test if it throws
/// none.
template <class Kind>
std::string message_of(const std::function<void()>& call) {
  try {
    call();
  } catch (const Kind& error) {
    return error.what();
  } catch (const std::exception& error) {
    ADD_FAILURE() << "another error: " << error.what();
    return "";
  }
  ADD_FAILURE() << "no error";
  return "";
}

/// \brief Uniform integers below a bound, by number: the same in every run.
class Dice {
 public:
  explicit Dice(std::uint64_t seed) : random_(seed, 0) {}
  std::uint64_t below(std::uint64_t bound) { return random_.bits64(next_++) % bound; }

 private:
  CounterRandom random_;
  std::uint64_t next_ = 0;
};

inline tensor::ParameterSpec parameter(const std::string& name,
                                       const tensor::Shape& shape,
                                       tensor::Group group = tensor::Group::kDense) {
  tensor::ParameterSpec spec;
  spec.name = name;
  spec.global_shape = shape;
  spec.local_shape = shape;
  spec.local_offset = tensor::Shape(shape.size(), 0);
  spec.group = group;
  return spec;
}

/// \brief Two matrices, a bank of experts and a norm, of odd sizes.
inline std::shared_ptr<const tensor::ParameterLayout> small_layout(
    std::int64_t rows = 5) {
  const auto expert = tensor::Group::kExpert;
  auto layout = std::make_shared<tensor::ParameterLayout>();
  layout->add_block(0, {parameter("model.embed_tokens.weight", {rows, 7})});
  layout->add_block(
      1, {parameter("model.layers.0.mlp.experts.0.w1.weight", {3, 7}, expert),
          parameter("model.layers.0.mlp.experts.1.w1.weight", {3, 7}, expert)});
  layout->add_block(2, {parameter("model.norm.weight", {7})});
  layout->finalize();
  return layout;
}

/// \brief Tensors with numbers that no other place has.
template <class T>
tensor::FlatTensors<T> filled(
    const std::shared_ptr<const tensor::ParameterLayout>& layout, std::uint64_t seed) {
  tensor::FlatTensors<T> tensors(layout, "test");
  const CounterRandom random(seed, 1);
  for (const tensor::ParameterSpec& parameter : layout->parameters()) {
    const auto device = tensors.flat(parameter);
    const auto host = Kokkos::create_mirror_view(device);
    for (std::size_t i = 0; i < host.size(); ++i) {
      const auto place = static_cast<std::uint64_t>(parameter.offset) + i;
      host(i) = static_cast<T>(random.uniform(place) - 0.5);
    }
    Kokkos::deep_copy(device, host);
  }
  return tensors;
}

template <class T>
std::vector<T> values_of(const tensor::FlatTensors<T>& tensors) {
  const auto host =
      Kokkos::create_mirror_view_and_copy(Kokkos::HostSpace(), tensors.flat());
  return {host.data(), host.data() + host.size()};
}

/// \brief Files of this process cannot grow beyond the limit while the object lives.
class FileSizeLimit {
 public:
  explicit FileSizeLimit(rlim_t bytes) {
    getrlimit(RLIMIT_FSIZE, &before_);
    std::signal(SIGXFSZ, SIG_IGN);
    const rlimit limit{bytes, before_.rlim_max};
    setrlimit(RLIMIT_FSIZE, &limit);
  }
  ~FileSizeLimit() { setrlimit(RLIMIT_FSIZE, &before_); }

 private:
  rlimit before_{};
};

/// \brief The data sets of a run's checkpoint, or of one group.
inline std::vector<io::TensorDeclaration> declarations(
    const tensor::ParameterLayout& whole, io::ElementType type,
    const std::vector<io::TensorGroup>& groups) {
  std::vector<io::TensorDeclaration> all;
  for (const io::TensorGroup group : groups) {
    for (const tensor::ParameterSpec& parameter : whole.parameters()) {
      all.push_back({group, parameter.name, parameter.global_shape, type});
    }
  }
  return all;
}

inline const std::vector<io::TensorGroup>& all_groups() {
  static const std::vector<io::TensorGroup> kGroups{io::TensorGroup::kParameters,
                                                    io::TensorGroup::kFirstMoment,
                                                    io::TensorGroup::kSecondMoment};
  return kGroups;
}

/// \brief Weights and moments as a run writes them; each rank what its layout calls written.
template <class T>
std::string save_checkpoint(const std::string& folder, const io::CheckpointInfo& info,
                            const tensor::ParameterLayout& whole,
                            const std::vector<tensor::FlatTensors<T>>& groups,
                            MPI_Comm comm = MPI_COMM_SELF,
                            const io::CheckpointHints& hints = {}) {
  std::filesystem::create_directories(folder);
  const std::string name = io::checkpoint_name(info.step);
  io::CheckpointWriter writer(folder + "/" + name, info,
                              declarations(whole, io::kElementTypeOf<T>, all_groups()),
                              comm, hints);
  for (std::size_t i = 0; i < groups.size(); ++i) {
    for (const tensor::ParameterSpec& parameter : groups[i].layout().parameters()) {
      const auto flat = groups[i].flat(parameter);
      if (!parameter.written) continue;
      writer.add(all_groups()[i], parameter, {0, parameter.local_count()},
                 std::as_bytes(std::span<const T>(flat.data(), flat.size())));
    }
  }
  writer.write();
  writer.commit();
  int rank = 0;
  MPI_Comm_rank(comm, &rank);
  if (rank == 0) io::move_latest(folder, name);
  return folder + "/" + name;
}

/// \brief This rank's boxes of weights and moments through the collective loader.
template <class T>
io::CheckpointInfo load_checkpoint(const std::string& path,
                                   const tensor::ParameterLayout& whole,
                                   const std::vector<tensor::FlatTensors<T>>& groups,
                                   MPI_Comm comm = MPI_COMM_SELF,
                                   const io::CheckpointHints& hints = {}) {
  io::CheckpointLoader loader(path, comm, hints);
  loader.require_tensors(io::TensorGroup::kParameters, whole);
  loader.require_optimizer_state();
  for (std::size_t i = 0; i < groups.size(); ++i) {
    loader.require_tensors(all_groups()[i], whole);
    for (const tensor::ParameterSpec& parameter : groups[i].layout().parameters()) {
      const auto flat = groups[i].flat(parameter);
      loader.add<T>(all_groups()[i], parameter, {0, parameter.local_count()},
                    std::span<T>(flat.data(), flat.size()), parameter.written);
    }
  }
  loader.read();
  return loader.info();
}

/// \brief Every field differs from its default.
inline io::CheckpointInfo unusual_info() {
  io::CheckpointInfo info;
  info.step = 20;
  info.next_sample = (std::int64_t{1} << 40) + 3;
  info.precision = "fp64";
  info.deck = "[run]\nname = \"\u00fcber\"\n";
  info.grid = "pp1 dp1 cp1 tp1 | edp1 ep1 etp1";
  info.build = "pleat test";
  info.hugging_face_config = "{\"a\": 1}";
  info.history = "first job\nsecond job\n";
  info.skipped = 3;
  info.rollbacks = 2;
  info.recent_losses = {5.25, 1.0 / 3.0, 4e-310};
  info.data_identity = "7 samples, hash 0123456789abcdef\n1 samples, hash 00000000000000ff";
  plan::ModelConfig& model = info.model;
  model.family = plan::Family::kQwen2Moe;
  model.layers = 3;
  model.hidden = 32;
  model.heads = 4;
  model.kv_heads = 2;
  model.head_dim = 16;
  model.ffn = 48;
  model.vocab = 251;
  model.rope_theta = 12345.678901234567;
  model.norm_eps = 1e-6;
  model.qkv_bias = true;
  model.tied = true;
  model.init_std = 0.1;
  model.moe = {.experts = 6,
               .top_k = 3,
               .ffn = 24,
               .shared_ffn = 40,
               .shared_gate = true,
               .score = plan::RouterScore::kSigmoid,
               .normalize = false,
               .auxiliary_coefficient = 0.01,
               .auxiliary_scope = plan::AuxiliaryScope::kGlobalBatch,
               .z_coefficient = 0.001,
               .groups = 3,
               .top_groups = 2,
               .routed_scale = 2.5,
               .bias_update_rate = 1e-3,
               .drop = {.capacity_factor = 1.25,
                        .scope = plan::DropScope::kSequence,
                        .policy = plan::DropPolicy::kPosition,
                        .pad = true}};
  model.moe_layer = {false, true, true};
  return info;
}

}  // namespace pleat::test
