// SPDX-License-Identifier: Apache-2.0
//
// Compiled with the flags of the program, unlike older_machine.cpp.
#include "used_instructions.hpp"

namespace pleat::start {

constinit const UsedInstructions kUsedInstructions = {
#if defined(__AVX__)
    .avx = true,
#endif
#if defined(__AVX2__)
    .avx2 = true,
#endif
#if defined(__FMA__)
    .fma = true,
#endif
#if defined(__AVX512F__)
    .avx512 = true,
#endif
#if defined(__AVX512BF16__)
    .avx512_bf16 = true,
#endif
};

}  // namespace pleat::start
