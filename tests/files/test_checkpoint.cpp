// SPDX-License-Identifier: Apache-2.0
#include <filesystem>
#include <fstream>
#include <numeric>

#include "files/support.hpp"
#include "pleat/io/checksum.hpp"
#include "support/as_nobody.hpp"

namespace pleat::io {
namespace {

using test::filled;
using test::load_checkpoint;
using test::message_of;
using test::save_checkpoint;
using test::small_layout;
using test::values_of;
using testing::HasSubstr;

template <class T>
std::string save(const std::string& folder, std::int64_t step, std::uint64_t seed = 1) {
  const auto layout = small_layout();
  CheckpointInfo info = test::unusual_info();
  info.step = step;
  return save_checkpoint<T>(
      folder, info, *layout,
      {filled<T>(layout, seed), filled<T>(layout, seed + 1), filled<T>(layout, seed + 2)});
}

/// A file with attributes alone.
void write_info(const std::string& path, const CheckpointInfo& info) {
  CheckpointWriter writer(path, info, {}, MPI_COMM_SELF);
  writer.write();
  writer.commit();
}

template <class T>
class CheckpointOf : public testing::Test {};
using Scalars = testing::Types<float, double>;
TYPED_TEST_SUITE(CheckpointOf, Scalars);

TYPED_TEST(CheckpointOf, RoundTripIsExact) {
  const test::TemporaryFolder folder;
  const std::string path = save<TypeParam>(folder / "checkpoints", 20);
  EXPECT_EQ(path, folder / "checkpoints/step_00000020.h5");
  EXPECT_EQ(test::read_file(folder / "checkpoints/LATEST"), "step_00000020.h5\n");
  EXPECT_FALSE(std::filesystem::exists(path + ".tmp"));
  const auto layout = small_layout();
  const tensor::FlatTensors<TypeParam> w(layout, "w");
  const tensor::FlatTensors<TypeParam> m(layout, "m");
  const tensor::FlatTensors<TypeParam> v(layout, "v");
  const CheckpointInfo info = load_checkpoint<TypeParam>(path, *layout, {w, m, v});
  EXPECT_EQ(values_of(w), values_of(filled<TypeParam>(layout, 1)));
  EXPECT_EQ(values_of(m), values_of(filled<TypeParam>(layout, 2)));
  EXPECT_EQ(values_of(v), values_of(filled<TypeParam>(layout, 3)));
  EXPECT_EQ(info.next_sample, test::unusual_info().next_sample);
}

void expect_unusual(const CheckpointInfo& info) {
  const CheckpointInfo expected = test::unusual_info();
  EXPECT_EQ(info.next_sample, expected.next_sample);
  EXPECT_EQ(info.step, expected.step);
  EXPECT_EQ(info.precision, expected.precision);
  EXPECT_EQ(info.deck, expected.deck);
  EXPECT_EQ(info.grid, expected.grid);
  EXPECT_EQ(info.build, expected.build);
  EXPECT_EQ(info.hugging_face_config, expected.hugging_face_config);
  EXPECT_EQ(std::tie(info.history, info.skipped, info.rollbacks, info.recent_losses,
                     info.data_identity),
            std::tie(expected.history, expected.skipped, expected.rollbacks,
                     expected.recent_losses, expected.data_identity));
  const plan::ModelConfig& a = info.model;
  const plan::ModelConfig& b = expected.model;
  EXPECT_EQ(a.family, b.family);
  EXPECT_EQ(
      std::tie(a.layers, a.hidden, a.heads, a.kv_heads, a.head_dim, a.ffn, a.vocab),
      std::tie(b.layers, b.hidden, b.heads, b.kv_heads, b.head_dim, b.ffn, b.vocab));
  EXPECT_EQ(
      std::tie(a.rope_theta, a.norm_eps, a.qkv_bias, a.qk_norm, a.tied, a.init_std),
      std::tie(b.rope_theta, b.norm_eps, b.qkv_bias, b.qk_norm, b.tied, b.init_std));
  EXPECT_EQ(a.moe_layer, b.moe_layer);
  EXPECT_EQ(std::tie(a.moe.experts, a.moe.top_k, a.moe.ffn, a.moe.shared_ffn),
            std::tie(b.moe.experts, b.moe.top_k, b.moe.ffn, b.moe.shared_ffn));
  EXPECT_EQ(std::tie(a.moe.shared_gate, a.moe.score, a.moe.normalize),
            std::tie(b.moe.shared_gate, b.moe.score, b.moe.normalize));
  EXPECT_EQ(a.moe.auxiliary_coefficient, b.moe.auxiliary_coefficient);
  EXPECT_EQ(a.moe.auxiliary_scope, b.moe.auxiliary_scope);
  EXPECT_EQ(a.moe.z_coefficient, b.moe.z_coefficient);
  EXPECT_EQ(std::tie(a.moe.groups, a.moe.top_groups, a.moe.routed_scale,
                     a.moe.bias_update_rate),
            std::tie(b.moe.groups, b.moe.top_groups, b.moe.routed_scale,
                     b.moe.bias_update_rate));
  const plan::DropConfig& drop = a.moe.drop;
  EXPECT_EQ(std::tie(drop.capacity_factor, drop.scope, drop.policy, drop.pad),
            std::tie(b.moe.drop.capacity_factor, b.moe.drop.scope, b.moe.drop.policy,
                     b.moe.drop.pad));
}

TEST(Checkpoint, EveryAttributeComesBack) {
  const test::TemporaryFolder folder;
  const std::string path = save<double>(folder.path(), 20);
  expect_unusual(CheckpointReader(path).info());
  expect_unusual(CheckpointLoader(path, MPI_COMM_SELF).info());
}

TEST(Checkpoint, NoRecentLossesAreNoAttribute) {
  const test::TemporaryFolder folder;
  CheckpointInfo info = test::unusual_info();
  info.recent_losses.clear();
  write_info(folder / "c.h5", info);
  EXPECT_TRUE(CheckpointReader(folder / "c.h5").info().recent_losses.empty());
}

// Files of format 3 that were written before it was kept.
TEST(Checkpoint, WithoutTheIdentityOfTheDataItIsRead) {
  const test::TemporaryFolder folder;
  CheckpointInfo info = test::unusual_info();
  info.data_identity.clear();
  write_info(folder / "c.h5", info);
  EXPECT_FALSE(Hdf5File::open_read(folder / "c.h5").root().has_attribute("data_identity"));
  EXPECT_EQ(CheckpointReader(folder / "c.h5").info().data_identity, "");
}

TEST(Checkpoint, EveryChoiceHasAWord) {
  const test::TemporaryFolder folder;
  const auto came_back = [&](const plan::MoeConfig& moe) {
    CheckpointInfo info = test::unusual_info();
    info.model.moe = moe;
    write_info(folder / "c.h5", info);
    return CheckpointReader(folder / "c.h5").info().model.moe;
  };
  plan::MoeConfig moe = test::unusual_info().model.moe;
  for (const auto score :
       {plan::RouterScore::kSoftmaxBeforeTopK, plan::RouterScore::kSoftmaxAfterTopK,
        plan::RouterScore::kSigmoid}) {
    moe.score = score;
    EXPECT_EQ(came_back(moe).score, score);
  }
  for (const auto scope :
       {plan::AuxiliaryScope::kMicroBatch, plan::AuxiliaryScope::kSequence,
        plan::AuxiliaryScope::kGlobalBatch}) {
    moe.auxiliary_scope = scope;
    EXPECT_EQ(came_back(moe).auxiliary_scope, scope);
  }
  moe.drop.scope = plan::DropScope::kSubSequence;
  moe.drop.policy = plan::DropPolicy::kProbs;
  EXPECT_EQ(came_back(moe).drop.scope, plan::DropScope::kSubSequence);
  EXPECT_EQ(came_back(moe).drop.policy, plan::DropPolicy::kProbs);
}

TEST(Checkpoint, FormatOneIsReadWithWhatItDidNotKnowSwitchedOff) {
  const test::TemporaryFolder folder;
  CheckpointInfo info = test::unusual_info();
  info.format_version = 1;
  info.model.moe.score = plan::RouterScore::kSoftmaxAfterTopK;
  write_info(folder / "c.h5", info);
  EXPECT_FALSE(
      Hdf5File::open_read(folder / "c.h5").root().has_attribute("moe.bias_update_rate"));
  const CheckpointInfo found = CheckpointReader(folder / "c.h5").info();
  EXPECT_EQ(found.format_version, 1);
  EXPECT_EQ(found.history, "");
  EXPECT_EQ(found.model.moe.experts, info.model.moe.experts);
  EXPECT_EQ(found.model.moe.groups, 1);
  EXPECT_EQ(found.model.moe.routed_scale, 1.0);
  EXPECT_EQ(found.model.moe.bias_update_rate, 0.0);
  EXPECT_FALSE(found.model.moe.drop.active());
}

TEST(Checkpoint, SameContentGivesTheSameBytes) {
  const test::TemporaryFolder folder;
  const std::string one = save<double>(folder / "one", 5);
  const std::string two = save<double>(folder / "two", 5);
  EXPECT_EQ(test::read_file(one), test::read_file(two));
}

TEST(Checkpoint, TensorsAreReadableByPathWithTheirGlobalShape) {
  const test::TemporaryFolder folder;
  const Hdf5File file = Hdf5File::open_read(save<float>(folder.path(), 5));
  const Hdf5Dataset dataset = file.root().dataset("parameters/model.embed_tokens.weight");
  EXPECT_EQ(dataset.shape(), (tensor::Shape{5, 7}));
  EXPECT_EQ(dataset.type_text(), "float32");
  const auto values = dataset.read_all<float>();
  EXPECT_EQ(dataset.string_attribute("checksum"),
            checksum_text(content_checksum<float>(values)));
}

TEST(Checkpoint, WeightsConvertBetweenPrecisions) {
  const test::TemporaryFolder folder;
  const auto layout = small_layout();
  const tensor::FlatTensors<double> wide(layout, "wide");
  load_parameters<double>(save<float>(folder / "f", 1), *layout, wide);
  const auto single = values_of(filled<float>(layout, 1));
  EXPECT_EQ(values_of(wide), std::vector<double>(single.begin(), single.end()));
  const tensor::FlatTensors<float> narrow(layout, "narrow");
  load_parameters<float>(save<double>(folder / "d", 1), *layout, narrow);
  EXPECT_EQ(values_of(narrow), single);
}

TEST(Checkpoint, BoxesMakeOneTensor) {
  const test::TemporaryFolder folder;
  std::vector<double> values(24);
  std::iota(values.begin(), values.end(), 1.0);
  tensor::ParameterSpec half = test::parameter("w", {4, 6});
  half.local_shape = {4, 3};
  CheckpointWriter writer(
      folder / "c.h5", test::unusual_info(),
      {{TensorGroup::kParameters, "w", {4, 6}, ElementType::kF64}}, MPI_COMM_SELF);
  for (const std::int64_t column : {0, 3}) {
    half.local_offset = {0, column};
    std::vector<double> part;
    for (std::int64_t i = 0; i < 4; ++i) {
      for (std::int64_t j = column; j < column + 3; ++j) {
        part.push_back(values[static_cast<std::size_t>(i * 6 + j)]);
      }
    }
    writer.add(TensorGroup::kParameters, half, {0, 12}, std::as_bytes(std::span(part)));
    writer.write();
  }
  writer.commit();
  const CheckpointReader reader(folder / "c.h5");
  reader.verify_all();
  EXPECT_EQ(reader.stored_checksum(TensorGroup::kParameters, "w"),
            content_checksum<double>(values));
  std::vector<double> right(12);
  reader.read<double>(TensorGroup::kParameters, half, right);
  EXPECT_EQ(right[0], 4.0);
  EXPECT_EQ(right[11], 24.0);
}

/// The box of rows 2 to 4 and columns 1 to 3 of the embedding, and nothing else.
std::shared_ptr<const tensor::ParameterLayout> box_layout() {
  tensor::ParameterSpec box = test::parameter("model.embed_tokens.weight", {5, 7});
  box.local_shape = {3, 3};
  box.local_offset = {2, 1};
  auto layout = std::make_shared<tensor::ParameterLayout>();
  layout->add_block(0, {box});
  layout->finalize();
  return layout;
}

// A rank that holds a box of one tensor reads it from the file of the whole model.
TEST(Checkpoint, ARankReadsItsBoxesOfTheWholeModel) {
  const test::TemporaryFolder folder;
  const std::string path = save<double>(folder.path(), 1);
  const auto whole = small_layout();
  const auto layout = box_layout();
  const tensor::FlatTensors<double> box(layout, "box");
  load_parameters<double>(path, *whole, box);
  const std::vector<double> all = values_of(filled<double>(whole, 1));
  const std::vector<double> found = values_of(box);
  for (std::size_t i = 0; i < 9; ++i) {
    EXPECT_EQ(found[i], all[(2 + i / 3) * 7 + 1 + i % 3]) << i;
  }
  EXPECT_THAT(message_of<InputError>(
                  [&] { load_parameters<double>(path, *small_layout(6), box); }),
              HasSubstr("PL0309"))
      << "the whole model must be that of the file";
}

// Copies are left to the rank that writes them; what no rank wrote is no silent zero.
TEST(Checkpoint, ARankWritesOnlyWhatItsLayoutCallsWritten) {
  const test::TemporaryFolder folder;
  const auto whole = small_layout();
  auto copies = std::make_shared<tensor::ParameterLayout>();
  for (tensor::ParameterSpec parameter : whole->parameters()) {
    parameter.written = parameter.name != "model.embed_tokens.weight";
    copies->add_block(0, {parameter});
  }
  copies->finalize();
  const auto tensors = filled<double>(copies, 1);
  const CheckpointReader reader(
      save_checkpoint<double>(folder.path(), test::unusual_info(), *whole,
                              {tensors, tensors, tensors}));
  for (const std::string& name : reader.names(TensorGroup::kParameters)) {
    const auto verify = [&] { reader.verify(TensorGroup::kParameters, name); };
    if (name == "model.embed_tokens.weight") {
      EXPECT_THAT(message_of<InputError>(verify), HasSubstr("PL0308"));
    } else {
      EXPECT_NO_THROW(verify()) << name;
    }
  }
}

void expect_loader_decodes(const std::string& path, const tensor::ParameterSpec& all,
                           ElementType type, std::span<const std::byte> raw) {
  std::vector<float> loaded(static_cast<std::size_t>(all.local_count()));
  CheckpointLoader loader(path, MPI_COMM_SELF, {.round_bytes = 1000});
  loader.add<float>(TensorGroup::kParameters, all, {0, all.local_count()}, loaded, true);
  loader.read();
  std::vector<float> decoded(loaded.size());
  decode_elements<float>(type, raw, decoded);
  EXPECT_EQ(std::memcmp(loaded.data(), decoded.data(), decoded.size() * sizeof(float)), 0);
}

TEST(Checkpoint, NarrowTypesAreKeptBitForBit) {
  const test::TemporaryFolder folder;
  for (const ElementType type : {ElementType::kBf16, ElementType::kF16}) {
    std::vector<std::uint16_t> bits(0x10000);
    std::iota(bits.begin(), bits.end(), 0);
    const tensor::ParameterSpec all = test::parameter("w", {0x10000});
    CheckpointWriter writer(folder / "c.h5", test::unusual_info(),
                            {{TensorGroup::kParameters, "w", {0x10000}, type}},
                            MPI_COMM_SELF);
    writer.add(TensorGroup::kParameters, all, {0, 0x10000}, std::as_bytes(std::span(bits)));
    writer.write();
    writer.commit();
    const CheckpointReader reader(folder / "c.h5");
    EXPECT_EQ(reader.stored_type(TensorGroup::kParameters, "w"), type);
    const auto raw = reader.read_raw(TensorGroup::kParameters, "w");
    EXPECT_EQ(std::memcmp(raw.data(), bits.data(), raw.size()), 0);
    expect_loader_decodes(folder / "c.h5", all, type, raw);
    // Any other HDF5 program sees numbers: the library's own conversion agrees with ours.
    const Hdf5File file = Hdf5File::open_read(folder / "c.h5");
    const auto seen = file.root().dataset("parameters/w").read_all<double>();
    std::vector<double> expected(seen.size());
    decode_elements<double>(type, raw, expected);
    for (std::size_t i = 0; i < seen.size(); ++i) {
      if (std::isfinite(expected[i])) {
        ASSERT_EQ(seen[i], expected[i]) << i;
      }
    }
  }
}

TEST(Checkpoint, AnotherModelIsRefusedWithTheDifferences) {
  const test::TemporaryFolder folder;
  const std::string path = save<double>(folder.path(), 1);
  const auto layout = small_layout(6);
  const tensor::FlatTensors<double> weights(layout, "w");
  const std::string text =
      message_of<InputError>([&] { load_parameters<double>(path, *layout, weights); });
  EXPECT_THAT(text, HasSubstr("PL0309"));
  EXPECT_THAT(text,
              HasSubstr("'model.embed_tokens.weight' has shape [5, 7], the model's is "
                        "[6, 7]"));
  auto other = std::make_shared<tensor::ParameterLayout>();
  other->add_block(0, {test::parameter("lm_head.weight", {5, 7})});
  other->finalize();
  const tensor::FlatTensors<double> head(other, "w");
  const std::string names =
      message_of<InputError>([&] { load_parameters<double>(path, *other, head); });
  EXPECT_THAT(names, HasSubstr("'lm_head.weight' is missing"));
  EXPECT_THAT(names, HasSubstr("'model.norm.weight' is not in the model"));
}

TEST(Checkpoint, WithoutMomentsNoRunContinues) {
  const test::TemporaryFolder folder;
  const auto layout = small_layout();
  const auto weights = filled<double>(layout, 1);
  {
    const std::vector<TensorGroup> one{TensorGroup::kParameters};
    CheckpointWriter writer(folder / "c.h5", test::unusual_info(),
                            test::declarations(*layout, ElementType::kF64, one),
                            MPI_COMM_SELF);
    for (const auto& parameter : layout->parameters()) {
      const std::span<const double> values(weights.flat(parameter).data(),
                                           weights.flat(parameter).size());
      writer.add(TensorGroup::kParameters, parameter, {0, parameter.local_count()},
                 std::as_bytes(values));
    }
    writer.write();
    writer.commit();
  }
  EXPECT_THAT(message_of<InputError>([&] {
                load_checkpoint<double>(folder / "c.h5", *layout,
                                        {weights, weights, weights});
              }),
              HasSubstr("PL0311"));
}

TEST(Checkpoint, NewerFormatsAreRefused) {
  const test::TemporaryFolder folder;
  CheckpointInfo info = test::unusual_info();
  info.format_version = kCheckpointFormat + 1;
  write_info(folder / "c.h5", info);
  EXPECT_THAT(message_of<InputError>([&] { CheckpointReader{folder / "c.h5"}; }),
              HasSubstr("PL0306"));
  EXPECT_THAT(message_of<InputError>(
                  [&] { CheckpointReader{test::golden("mixtral-tiny/golden.h5")}; }),
              HasSubstr("PL0305"));
}

TEST(Checkpoint, WithoutPermissionItIsNotCalledDamaged) {
  const test::TemporaryFolder folder;
  std::filesystem::permissions(folder.path(), std::filesystem::perms(0755));
  const std::string path = folder / "step_00000002.h5";
  std::ofstream(path) << "any";
  std::filesystem::permissions(path, std::filesystem::perms::none);
  const std::string message = message_of<IoError>([&] {
    const test::AsNobody other_user;
    CheckpointReader reader(path);
  });
  EXPECT_THAT(message,
              testing::AllOf(testing::StartsWith("PL0316"), HasSubstr("Permission denied")));
}

TEST(Checkpoint, AnAbandonedWriterLeavesThePreviousFile) {
  const test::TemporaryFolder folder;
  const std::string path = save<double>(folder.path(), 3);
  const std::string before = test::read_file(path);
  {
    CheckpointWriter writer(path, test::unusual_info(), {}, MPI_COMM_SELF);
    EXPECT_TRUE(std::filesystem::exists(path + ".tmp"));
  }
  EXPECT_FALSE(std::filesystem::exists(path + ".tmp"));
  EXPECT_EQ(test::read_file(path), before);
}

TEST(Checkpoint, NoRoomIsAnIoErrorAndLeavesThePreviousFile) {
  const test::TemporaryFolder folder;
  const std::string path = save<double>(folder.path(), 3);
  const std::string before = test::read_file(path);
  const auto data_bytes = static_cast<std::int64_t>(3 * sizeof(double) * 84);
  EXPECT_LE(before.size(),
            checkpoint_metadata_bytes(test::unusual_info(), 12) + data_bytes);
  {
    const test::FileSizeLimit full(before.size());
    const std::string text =
        message_of<IoError>([&] { save<double>(folder.path(), 3, 9); });
    EXPECT_THAT(text, HasSubstr("PL0310"));
    EXPECT_THAT(text, HasSubstr("no room"));
  }
  EXPECT_EQ(test::read_file(path), before);
  const std::filesystem::directory_iterator all(folder.path());
  EXPECT_EQ(std::distance(begin(all), end(all)), 2);  // the checkpoint and LATEST
}

}  // namespace
}  // namespace pleat::io
