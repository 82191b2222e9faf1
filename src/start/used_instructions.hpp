// SPDX-License-Identifier: Apache-2.0
#pragma once

namespace pleat::start {

/// \brief A set of instructions that some x86-64 lack, and whether the compiler may use it in
/// this build.
struct UsedInstructions {
  bool avx, avx2, fma, avx512, avx512_bf16;
};

/// \brief Data that no code has to form.
extern const UsedInstructions kUsedInstructions;

}  // namespace pleat::start
