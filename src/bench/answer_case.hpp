// SPDX-License-Identifier: Apache-2.0
#pragma once

/// \file
/// \brief Inputs and results of the kernels whose answers are stored.

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include "pleat/base/arena.hpp"
#include "pleat/base/copy.hpp"
#include "pleat/base/error.hpp"
#include "pleat/base/random.hpp"
#include "pleat/bench/answers.hpp"
#include "precision_name.hpp"

namespace pleat::bench {

/// \brief The random numbers of a name; scripts/bench_answers has the same.
inline CounterRandom answer_random(std::string_view name) {
  constexpr std::uint64_t kSeed = 6;
  return {kSeed, hash_name(name)};
}

inline Inputs inputs_of(std::string_view precision) {
  return precision == "bf16" ? Inputs::kNarrow : Inputs::kWide;
}

/// \brief Input `index` of a name, in (-1, 1), never 0: an odd number over 2^24 or 2^8.
inline double answer_input(const CounterRandom& random, std::uint64_t index,
                           Inputs inputs) {
  const int bits = inputs == Inputs::kWide ? 24 : 8;
  const auto half = static_cast<std::int64_t>(1) << bits;
  const auto drawn = static_cast<std::int64_t>(random.bits64(index) >> (64 - bits));
  return static_cast<double>(2 * drawn + 1 - half) / static_cast<double>(half);
}

/// \brief The kernels of one precision: makes their arrays and keeps their results.
template <class T>
class AnswerCase {
 public:
  explicit AnswerCase(std::vector<Answer>& answers) : answers_(answers) {}

  ExecSpace exec;
  Arena scratch{"pleat::bench::answers"};

  /// \brief Inputs of that name times a power of two, as U.
  template <class U = T>
  DeviceView<U, 1> numbers(std::string_view name, std::int64_t count,
                           double scale = 1.0) const {
    const CounterRandom random = answer_random(name);
    return filled<U>(count, [&](std::int64_t i) {
      const auto index = static_cast<std::uint64_t>(i);
      return scale * answer_input(random, index, inputs_of(precision_name<T>()));
    });
  }
  template <class U = T>
  DeviceView<U, 2> rows(std::string_view name, std::int64_t rows, std::int64_t columns,
                        double scale = 1.0) const {
    return shaped<U>(numbers<U>(name, rows * columns, scale), rows, columns);
  }
  /// \brief Integers in [0, below), plus `first`.
  DeviceView<std::int32_t, 1> integers(std::string_view name, std::int64_t count,
                                       std::uint64_t below,
                                       std::int32_t first = 0) const {
    const CounterRandom random = answer_random(name);
    return filled<std::int32_t>(count, [&](std::int64_t i) {
      return first + static_cast<std::int32_t>(
                         random.bits64(static_cast<std::uint64_t>(i)) % below);
    });
  }
  /// \brief element(i) for i < count.
  template <class U, class Element>
  static DeviceView<U, 1> filled(std::int64_t count, const Element& element) {
    const DeviceView<U, 1> view("pleat::bench::answer", static_cast<std::size_t>(count));
    const auto mirror = host_mirror(view);
    for (std::int64_t i = 0; i < count; ++i) mirror(i) = static_cast<U>(element(i));
    copy_tensor(view, mirror);
    return view;
  }
  /// \brief The same numbers as a matrix of its own.
  template <class U>
  DeviceView<U, 2> shaped(const DeviceView<U, 1>& flat, std::int64_t rows,
                          std::int64_t columns) const {
    const DeviceView<U, 2> matrix("pleat::bench::answer", static_cast<std::size_t>(rows),
                                  static_cast<std::size_t>(columns));
    copy_tensor(DeviceView<U, 1>(matrix.data(), matrix.size()), flat);
    return matrix;
  }
  /// \brief Zeros.
  template <class U = T>
  DeviceView<U, 2> zeros(std::int64_t rows, std::int64_t columns) const {
    return DeviceView<U, 2>("pleat::bench::answer", static_cast<std::size_t>(rows),
                            static_cast<std::size_t>(columns));
  }
  template <class U = T>
  DeviceView<U, 1> zeros(std::int64_t count) const {
    return DeviceView<U, 1>("pleat::bench::answer", static_cast<std::size_t>(count));
  }

  /// \brief Keeps a result: waits for it and compares it with the stored one.
  /// \param element  the type in whose units it is measured, where it is not U
  template <class View>
  void add(const char* kernel, const char* output, const View& result,
           const char* element = precision_name<typename View::non_const_value_type>()) {
    exec.fence("pleat::bench: an answer");
    const auto mirror = host_copy(result);
    std::vector<double> elements(mirror.size());
    for (std::size_t i = 0; i < elements.size(); ++i) {
      elements[i] = static_cast<double>(mirror.data()[i]);
    }
    Answer answer{.kernel = kernel,
                  .output = output,
                  .precision = precision_name<T>(),
                  .element = element,
                  .content = content_of(elements),
                  .limit = limit_in_ulps(element)};
    const StoredAnswer* const stored = stored_answer_of(answer);
    PLEAT_ASSERT(stored != nullptr, "no answer is stored for '{}' of {}", output, kernel);
    PLEAT_ASSERT(stored->count == static_cast<std::int64_t>(elements.size()),
                 "'{}' of {} has {} elements, {} are stored", output, kernel,
                 elements.size(), stored->count);
    answer.ulps = difference_in_ulps(*stored, element, answer.content, stored->content);
    answers_.push_back(std::move(answer));
  }

 private:
  std::vector<Answer>& answers_;
};

}  // namespace pleat::bench
