// SPDX-License-Identifier: Apache-2.0
#include "pleat/comm/libraries.hpp"

#include <algorithm>
#include <array>
#include <string_view>

#include <fmt/format.h>
#include <mpi.h>

#include "pleat/comm/check_mpi.hpp"

#ifdef PLEAT_HAVE_NCCL
#include "nccl_api.hpp"
#endif

namespace pleat::comm {

std::string mpi_library() {
  std::array<char, MPI_MAX_LIBRARY_VERSION_STRING> text{};
  int length = 0;
  PLEAT_CHECK_MPI(MPI_Get_library_version(text.data(), &length));
  // Libraries describe their whole configuration; the version is in the first line.
  const std::string_view all(text.data(), static_cast<std::size_t>(length));
  std::string line(all.substr(0, all.find('\n')));
  std::replace(line.begin(), line.end(), '\t', ' ');
  const auto both_blank = [](char a, char b) { return a == ' ' && b == ' '; };
  line.erase(std::unique(line.begin(), line.end(), both_blank), line.end());
  constexpr std::size_t kLongest = 72;
  return line.substr(0, kLongest);
}

std::string nccl_library() {
#if defined(PLEAT_HAVE_NCCL) && defined(NCCL_MAJOR)
  return fmt::format("{}.{}.{}", NCCL_MAJOR, NCCL_MINOR, NCCL_PATCH);
#elif defined(PLEAT_HAVE_NCCL)
  return "of unknown version";
#else
  return {};
#endif
}

}  // namespace pleat::comm
