// SPDX-License-Identifier: Apache-2.0
//
// A program built with -march=native ends at the first instruction that an older machine lacks,
// and that may come before main(): constructors of global objects have such instructions, too.
// So this source is compiled for every x86-64, runs before those constructors, and uses nothing
// of C++'s library, whose inline functions the linker could take from another source.
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include <unistd.h>

#include "used_instructions.hpp"

#if defined(__x86_64__) && defined(__GNUC__)

namespace pleat::start {
namespace {

constexpr int kInputError = 2;  // ExitCode::kInput

void append_if_missing(char* list, std::size_t size, const char* name, bool used,
                       bool present) {
  if (!used || present) return;
  const std::size_t length = std::strlen(list);
  std::snprintf(list + length, size - length, "%s%s", length == 0 ? "" : ", ", name);
}

/// 101 is the first priority that is not the compiler's own.
[[gnu::constructor(101)]] void refuse_older_machine() {
  __builtin_cpu_init();
  const UsedInstructions& used = kUsedInstructions;
  char missing[128] = "";
  const auto check = [&](const char* name, bool is_used, bool present) {
    append_if_missing(missing, sizeof(missing), name, is_used, present);
  };
  check("AVX", used.avx, __builtin_cpu_supports("avx"));
  check("AVX2", used.avx2, __builtin_cpu_supports("avx2"));
  check("FMA", used.fma, __builtin_cpu_supports("fma"));
  check("AVX-512", used.avx512, __builtin_cpu_supports("avx512f"));
  check("AVX-512 BF16", used.avx512_bf16, __builtin_cpu_supports("avx512bf16"));
  if (missing[0] == '\0') return;
  std::fprintf(stderr,
               "pleat: "
               "PL0107: this program was built for a machine with %s, which this one lacks\n"
               "HINT: build it on this kind of machine, or anywhere with "
               "-DPLEAT_NATIVE=OFF.\n",
               missing);
  _exit(kInputError);
}

}  // namespace
}  // namespace pleat::start

#endif
