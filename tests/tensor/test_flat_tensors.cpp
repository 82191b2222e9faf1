// SPDX-License-Identifier: Apache-2.0
#include "pleat/tensor/flat_tensors.hpp"

#include <gtest/gtest.h>

namespace pleat::tensor {
namespace {

std::shared_ptr<const ParameterLayout> attention_layout() {
  const auto spec = [](std::string name, Shape shape) {
    ParameterSpec parameter;
    parameter.name = std::move(name);
    parameter.global_shape = std::move(shape);
    return parameter;
  };
  auto layout = std::make_shared<ParameterLayout>();
  layout->add_block(0, {spec("norm", {3})});
  layout->add_block(0, {spec("q", {4, 3}), spec("k", {2, 3}), spec("v", {2, 3})});
  layout->finalize();
  return layout;
}

TEST(FlatTensors, StartAsZerosPaddingIncluded) {
  const FlatTensors<float> tensors(attention_layout(), "test");
  const auto host =
      Kokkos::create_mirror_view_and_copy(Kokkos::HostSpace(), tensors.flat());
  EXPECT_EQ(static_cast<std::int64_t>(host.size()), tensors.layout().size());
  for (std::size_t i = 0; i < host.size(); ++i) ASSERT_EQ(host(i), 0.0F);
}

TEST(FlatTensors, FusedTensorsSeeTheTensorsOfTheirBlock) {
  const FlatTensors<double> tensors(attention_layout(), "test");
  for (const char* name : {"q", "k", "v"}) {
    const ParameterSpec& parameter = tensors.layout().at(name);
    Kokkos::deep_copy(tensors.flat(parameter), static_cast<double>(name[0]));
  }
  const auto qkv_QD = Kokkos::create_mirror_view_and_copy(Kokkos::HostSpace(),
                                                          tensors.fused<2>("q", 8, 3));
  for (std::size_t row = 0; row < 8; ++row) {
    const char expected = row < 4 ? 'q' : (row < 6 ? 'k' : 'v');
    for (std::size_t column = 0; column < 3; ++column) {
      EXPECT_EQ(qkv_QD(row, column), static_cast<double>(expected))
          << row << ", " << column;
    }
  }
  EXPECT_EQ(tensors.flat(tensors.layout().at("norm")).extent(0), 3U);
}

TEST(FlatTensors, CopiesShareTheBuffer) {
  const FlatTensors<float> tensors(attention_layout(), "test");
  const FlatTensors<float> copy = tensors;
  EXPECT_EQ(copy.flat().data(), tensors.flat().data());
  EXPECT_EQ(&copy.layout(), &tensors.layout());
}

TEST(FlatTensors, OfARangeSeeThatRangeOfTheLayout) {
  const FlatTensors<double> whole(attention_layout(), "test");
  const ParameterSpec& k = whole.layout().at("k");
  const ParameterSpec& v = whole.layout().at("v");
  Kokkos::deep_copy(whole.flat(k), 1.0);
  Kokkos::deep_copy(whole.flat(v), 2.0);
  const Range range{k.offset, v.offset + v.local_count()};
  const FlatTensors<double> part(whole.shared_layout(), whole.part(range), range);
  EXPECT_EQ(static_cast<std::int64_t>(part.flat().size()), range.size());
  EXPECT_EQ(part.flat(k).data(), whole.flat(k).data());
  EXPECT_EQ(part.flat(v).data(), whole.flat(v).data());
  EXPECT_EQ(part.fused<2>("k", 4, 3).data(), whole.flat(k).data());
  EXPECT_THROW(part.flat(whole.layout().at("q")), InternalError) << "before the range";
  EXPECT_THROW(part.part({range.begin, range.end + 1}), InternalError) << "beyond it";
}

TEST(FlatTensors, AFusedTensorBeyondTheBufferIsRefused) {
  const FlatTensors<float> tensors(attention_layout(), "test");
  EXPECT_THROW(tensors.fused<2>("q", 8, 300), InternalError);
  EXPECT_THROW(tensors.fused<1>("absent", 1), InternalError);
}

}  // namespace
}  // namespace pleat::tensor
