// SPDX-License-Identifier: Apache-2.0
#pragma once

/// \file
/// \brief Products, those of groups, and attention: the kernels that go to libraries on GPUs.

#include "answer_case.hpp"

namespace pleat::bench {

/// \brief In bf16 also at sizes that reach the libraries that take no others (docs/benchmarks.md).
template <class T>
void answer_products(AnswerCase<T>& x);

}  // namespace pleat::bench
