// SPDX-License-Identifier: Apache-2.0
#pragma once

/// \file
/// \brief The kernels of a layer, ready to be timed one by one.
///
/// Work is what the operation asks for: multiplications and additions of products, of
/// attention those below the diagonal alone; for all others the bytes of each array that
/// has to be read or written, once.

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "pleat/base/arena.hpp"
#include "pleat/base/copy.hpp"
#include "pleat/base/types.hpp"
#include "pleat/bench/rates.hpp"

namespace pleat::bench {

/// \brief One kernel with its arrays, ready to run again and again.
struct TimedKernel {
  std::string name;
  std::string shape;
  double work;
  const char* unit;  ///< "FLOP/s" or "B/s"
  std::function<void()> run;
};

inline TimedKernel product_kernel(std::string name, std::string shape, double flops,
                                  std::function<void()> run) {
  return {std::move(name), std::move(shape), flops, "FLOP/s", std::move(run)};
}

inline TimedKernel memory_kernel(std::string name, std::string shape, double bytes,
                                 std::function<void()> run) {
  return {std::move(name), std::move(shape), bytes, "B/s", std::move(run)};
}

/// \brief What the kernels of one precision share.
template <class T>
struct Workbench {
  const Shape& shape;
  ExecSpace exec{};
  std::shared_ptr<Arena> scratch = std::make_shared<Arena>("pleat::bench::scratch");

  /// \brief An array of numbers that no kernel takes for a special case: 0.01, 0.02,
  /// ..., 1.27.
  template <class U = T>
  DeviceView<U, 2> rows(std::int64_t rows, std::int64_t columns) const {
    const DeviceView<U, 2> view(
        Kokkos::view_alloc(Kokkos::WithoutInitializing, "pleat::bench::kernel"),
        static_cast<std::size_t>(rows), static_cast<std::size_t>(columns));
    const auto mirror = host_mirror(view);
    for (std::size_t i = 0; i < mirror.size(); ++i) {
      mirror.data()[i] = static_cast<U>(0.01 * static_cast<double>(i % 127 + 1));
    }
    copy_tensor(view, mirror);
    return view;
  }
  template <class U = T>
  DeviceView<U, 1> numbers(std::int64_t count) const {
    const DeviceView<U, 1> view("pleat::bench::kernel", static_cast<std::size_t>(count));
    fill_tensor(view, U(1));
    return view;
  }
  static double bytes_of(double elements) { return elements * sizeof(T); }
};

/// \brief Integers in [0, below) for each index.
DeviceView<std::int32_t, 1> drawn_integers(std::int64_t count, std::uint64_t below);

/// \brief Makes a kernel with its arrays when it is its turn, so that one at a time takes
/// memory.
template <class T>
using Maker = std::function<TimedKernel(const Workbench<T>&)>;

/// \brief Dense products and products grouped by expert.
template <class T>
std::vector<Maker<T>> product_makers();
/// \brief Attention, forward and backward.
template <class T>
std::vector<Maker<T>> attention_makers();
/// \brief What goes over rows: norms, RoPE, SwiGLU, to the experts and back.
template <class T>
std::vector<Maker<T>> row_makers();
/// \brief What computes in fp32 where the model is in bf16: router, loss, optimizer.
template <class T>
std::vector<Maker<T>> wide_makers();

}  // namespace pleat::bench
