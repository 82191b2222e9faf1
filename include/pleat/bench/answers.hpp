// SPDX-License-Identifier: Apache-2.0
#pragma once

/// \file
/// \brief What the kernels of this machine compute, against stored answers.
///
/// The inputs are functions of a name and an index (base/random.hpp), so every machine
/// has the same. scripts/bench_answers computed the answers from the kernels' definitions
/// with 45 digits and rounded them to fp64. Of each tensor it kept its content: four
/// elements, and eight sums over all elements with signs at random, element i in sum i
/// mod 8, so that an element that is wrong anywhere shows in one of them.

#include <array>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "pleat/comm/communicator.hpp"

namespace pleat::bench {

/// \brief How many bits the inputs have: 24, which fp32 holds, or 8, which bf16 holds. A
/// product of 24 bits tells whether the hardware keeps fewer.
enum class Inputs { kWide, kNarrow };

inline constexpr std::size_t kSamples = 4;
inline constexpr std::size_t kSums = 8;
using Content = std::array<double, kSamples + kSums>;

struct StoredAnswer {
  std::string_view kernel;
  std::string_view output;
  Inputs inputs;
  std::int64_t count;  ///< elements of the tensor
  double largest;      ///< magnitude of its largest element
  Content content;
};

/// \brief All of them; src/bench/stored_answers.cpp is written by scripts/bench_answers.
std::span<const StoredAnswer> stored_answers();

/// \brief One result of this machine.
struct Answer {
  std::string kernel;
  std::string output;
  std::string precision;  ///< in which the kernel ran: "fp64", "fp32", "bf16"
  std::string element;    ///< type of the elements; "int" must be equal
  Content content{};
  double ulps = 0.0;   ///< the largest difference of a part of the content, see below
  double limit = 0.0;  ///< for ulps
  bool passes() const { return ulps <= limit; }  // not where ulps is NaN
};

/// \brief The content of a tensor's elements in row-major order.
Content content_of(std::span<const double> elements);

/// \brief The largest difference of two contents, in units in the last place of `element`
/// at the size of the tensor's largest element. The difference of a sum of n elements
/// counts by the root of n, as n independent roundings would add up. Infinite where one
/// is not finite.
double difference_in_ulps(const StoredAnswer& stored, std::string_view element,
                          const Content& a, const Content& b);

/// \brief What `element` is allowed to differ by: the result of a sum in another order,
/// or of another library's exponential.
double limit_in_ulps(std::string_view element);

/// \brief The stored answer to what an Answer came from; null where there is none.
const StoredAnswer* stored_answer_of(const Answer& answer);

/// \brief Runs every kernel at small sizes in every precision that it knows, on
/// ExecSpace. Takes a fraction of a second.
std::vector<Answer> compute_answers();

/// \brief The largest `ulps` of all ranks in each answer. Collective; all ranks have the
/// same answers.
void take_worst_of_ranks(std::vector<Answer>& answers, comm::Communicator& ranks);

}  // namespace pleat::bench
