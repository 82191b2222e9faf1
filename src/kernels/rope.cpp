// SPDX-License-Identifier: Apache-2.0
#include "pleat/kernels/rope.hpp"

#include <cmath>
#include <numeric>

#include "pleat/base/copy.hpp"
#include "pleat/base/error.hpp"
#include "rows.hpp"

namespace pleat::kernels {

using detail::Index;
using detail::RowTeam;

template <class T>
RopeTables<T> make_rope_tables(const std::vector<std::int64_t>& positions,
                               std::int64_t head_dim, double theta) {
  PLEAT_ASSERT(head_dim % 2 == 0, "rotary embedding of an odd head dimension {}",
               head_dim);
  const auto rows = static_cast<std::int64_t>(positions.size());
  const std::int64_t half = head_dim / 2;
  using A = Accumulator<T>;
  RopeTables<T> tables{DeviceView<A, 2>("pleat::kernels::rope_cos", rows, half),
                       DeviceView<A, 2>("pleat::kernels::rope_sin", rows, half)};
  const auto cos_Sd = host_mirror(tables.cos_Sd);
  const auto sin_Sd = host_mirror(tables.sin_Sd);
  for (std::int64_t i = 0; i < half; ++i) {
    const double frequency =
        std::pow(theta, -2.0 * static_cast<double>(i) / static_cast<double>(head_dim));
    for (std::int64_t s = 0; s < rows; ++s) {
      const double angle =
          static_cast<double>(positions[static_cast<std::size_t>(s)]) * frequency;
      cos_Sd(s, i) = static_cast<A>(std::cos(angle));
      sin_Sd(s, i) = static_cast<A>(std::sin(angle));
    }
  }
  copy_tensor(tables.cos_Sd, cos_Sd);
  copy_tensor(tables.sin_Sd, sin_Sd);
  return tables;
}

template <class T>
RopeTables<T> make_rope_tables(std::int64_t sequence, std::int64_t head_dim,
                               double theta) {
  std::vector<std::int64_t> positions(static_cast<std::size_t>(sequence));
  std::iota(positions.begin(), positions.end(), std::int64_t{0});
  return make_rope_tables<T>(positions, head_dim, theta);
}

template <class T>
void rope_in_place(const ExecSpace& exec, Rotation rotation, const RopeTables<T>& tables,
                   std::int64_t sequence, std::int64_t rotated_heads,
                   std::int64_t head_dim, const DeviceView<T, 2>& qkv_TQ) {
  const std::int64_t half = head_dim / 2;
  PLEAT_ASSERT(
      tables.cos_Sd.extent_int(0) >= sequence && tables.cos_Sd.extent_int(1) == half,
      "rotary tables [{}, {}] for sequence {}, head dimension {}",
      tables.cos_Sd.extent(0), tables.cos_Sd.extent(1), sequence, head_dim);
  PLEAT_ASSERT(rotated_heads * head_dim <= qkv_TQ.extent_int(1),
               "{} heads of {} exceed rows of {}", rotated_heads, head_dim,
               qkv_TQ.extent(1));
  const auto cos_Sd = tables.cos_Sd;
  const auto sin_Sd = tables.sin_Sd;
  using A = Accumulator<T>;
  const A sign = rotation == Rotation::kForward ? A(1) : A(-1);
  const Index width = rotated_heads * head_dim;
  detail::for_each_row(
      "pleat::kernels::rope_in_place", exec, qkv_TQ.extent(0), half,
      KOKKOS_LAMBDA(const RowTeam& team, Index token) {
        const A* const cosine = &cos_Sd(token % sequence, 0);
        const A* const sine = &sin_Sd(token % sequence, 0);
        T* const row = &qkv_TQ(token, 0);
        team.fetch(row + qkv_TQ.stride(0), width);
        for (Index first = 0; first < width; first += head_dim) {
          T* const low = row + first;
          T* const high = low + half;
          team.for_each(half, [&](Index i) {
            const A x = static_cast<A>(low[i]);
            const A y = static_cast<A>(high[i]);
            const A c = cosine[i];
            const A s = sign * sine[i];
            low[i] = static_cast<T>(x * c - y * s);
            high[i] = static_cast<T>(y * c + x * s);
          });
        }
      });
}

#define PLEAT_INSTANTIATE(T)                                                       \
  template RopeTables<T> make_rope_tables<T>(const std::vector<std::int64_t>&,     \
                                             std::int64_t, double);                \
  template RopeTables<T> make_rope_tables<T>(std::int64_t, std::int64_t, double);  \
  template void rope_in_place<T>(const ExecSpace&, Rotation, const RopeTables<T>&, \
                                 std::int64_t, std::int64_t, std::int64_t,         \
                                 const DeviceView<T, 2>&);
PLEAT_INSTANTIATE(float)
PLEAT_INSTANTIATE(double)
PLEAT_INSTANTIATE(Bf16)
#undef PLEAT_INSTANTIATE

}  // namespace pleat::kernels
