// SPDX-License-Identifier: Apache-2.0
#include "pleat/io/checksum.hpp"

#include <array>
#include <cstring>

#if defined(__AVX2__)
#include <immintrin.h>
#endif

#include "pleat/base/error.hpp"

namespace pleat::io {

namespace {

constexpr std::uint64_t kStep = 0x9e3779b97f4a7c15ULL;  // from one place to the next

template <class Bits>
std::uint64_t bits_at(const std::byte* place) {
  Bits bits;
  std::memcpy(&bits, place, sizeof(Bits));
  return bits;
}

template <class Bits>
std::uint64_t sum_one_by_one(const std::byte* bytes, std::size_t count,
                             std::uint64_t first_index) {
  std::uint64_t sum = 0;
  for (std::size_t i = 0; i < count; ++i) {
    sum += checksum_term(first_index + i, bits_at<Bits>(bytes + i * sizeof(Bits)));
  }
  return sum;
}

#if defined(__AVX2__) && !defined(__AVX512DQ__)

// AVX2 has no product of 64-bit integers, and compilers put one together from three of 32 bits.
// Two will do: vpmulld gives both mixed products at once.
template <std::uint64_t kFactor>
__m256i product(__m256i x) {
  const __m256i factor = _mm256_set1_epi64x(static_cast<long long>(kFactor));
  const __m256i halves_swapped =
      _mm256_set1_epi64x(static_cast<long long>(kFactor >> 32 | kFactor << 32));
  const __m256i mixed = _mm256_mullo_epi32(x, halves_swapped);
  const __m256i upper = _mm256_add_epi32(mixed, _mm256_slli_epi64(mixed, 32));
  return _mm256_add_epi64(_mm256_mul_epu32(x, factor),
                          _mm256_blend_epi32(_mm256_setzero_si256(), upper, 0xaa));
}

__m256i mix(__m256i x) {
  x = product<0xbf58476d1ce4e5b9ULL>(_mm256_xor_si256(x, _mm256_srli_epi64(x, 30)));
  x = product<0x94d049bb133111ebULL>(_mm256_xor_si256(x, _mm256_srli_epi64(x, 27)));
  return _mm256_xor_si256(x, _mm256_srli_epi64(x, 31));
}

template <class Bits>
__m256i four_at(const std::byte* place) {
  if constexpr (sizeof(Bits) == 8) {
    return _mm256_loadu_si256(reinterpret_cast<const __m256i*>(place));
  } else if constexpr (sizeof(Bits) == 4) {
    return _mm256_cvtepu32_epi64(_mm_loadu_si128(reinterpret_cast<const __m128i*>(place)));
  } else {
    return _mm256_cvtepu16_epi64(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(place)));
  }
}

__m256i four_places(std::uint64_t place) {
  return _mm256_set_epi64x(static_cast<long long>(place + 3 * kStep),
                           static_cast<long long>(place + 2 * kStep),
                           static_cast<long long>(place + kStep),
                           static_cast<long long>(place));
}

/// Of twelve elements, eight as vectors and four as integers: so all units of a core are busy.
template <class Bits>
std::uint64_t sum_terms(std::span<const std::byte> bytes, std::uint64_t first_index) {
  constexpr std::size_t kBlock = 12;
  const std::size_t count = bytes.size() / sizeof(Bits);
  const std::uint64_t place = (first_index + 1) * kStep;
  const __m256i step = _mm256_set1_epi64x(static_cast<long long>(kBlock * kStep));
  __m256i places[] = {four_places(place), four_places(place + 4 * kStep)};
  __m256i sums[] = {_mm256_setzero_si256(), _mm256_setzero_si256()};
  std::uint64_t sum = 0;
  std::size_t i = 0;
  for (; i + kBlock <= count; i += kBlock) {
    const std::byte* block = bytes.data() + i * sizeof(Bits);
    for (std::size_t half = 0; half < 2; ++half) {
      const __m256i four = four_at<Bits>(block + 4 * half * sizeof(Bits));
      sums[half] =
          _mm256_add_epi64(sums[half], mix(_mm256_add_epi64(four, mix(places[half]))));
      places[half] = _mm256_add_epi64(places[half], step);
    }
    sum += sum_one_by_one<Bits>(block + 8 * sizeof(Bits), 4, first_index + i + 8);
  }
  std::array<std::uint64_t, 4> lanes{};
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(lanes.data()),
                      _mm256_add_epi64(sums[0], sums[1]));
  for (const std::uint64_t lane : lanes) sum += lane;
  return sum + sum_one_by_one<Bits>(bytes.data() + i * sizeof(Bits), count - i,
                                    first_index + i);
}

#else

template <class Bits>
std::uint64_t sum_terms(std::span<const std::byte> bytes, std::uint64_t first_index) {
  return sum_one_by_one<Bits>(bytes.data(), bytes.size() / sizeof(Bits), first_index);
}

#endif

}  // namespace

std::uint64_t content_checksum(ElementType type, std::span<const std::byte> bytes,
                               std::uint64_t first_index) {
  switch (element_size(type)) {
    case 8:
      return sum_terms<std::uint64_t>(bytes, first_index);
    case 4:
      return sum_terms<std::uint32_t>(bytes, first_index);
    default:
      return sum_terms<std::uint16_t>(bytes, first_index);
  }
}

template <class T>
std::uint64_t content_checksum(std::span<const T> values, std::uint64_t first_index) {
  return content_checksum(kElementTypeOf<T>, std::as_bytes(values), first_index);
}

std::uint64_t box_checksum(ElementType type, std::span<const std::byte> bytes,
                           const tensor::Shape& global_shape,
                           const tensor::Shape& box_offset,
                           const tensor::Shape& box_shape) {
  const std::size_t rank = global_shape.size();
  PLEAT_ASSERT(box_offset.size() == rank && box_shape.size() == rank,
               "box and shape differ in rank");
  const std::int64_t count = tensor::element_count(box_shape);
  if (count == 0) return 0;
  const std::int64_t run = rank == 0 ? 1 : box_shape.back();
  const std::size_t run_bytes = static_cast<std::size_t>(run) * element_size(type);
  std::uint64_t sum = 0;
  for (std::int64_t row = 0; row < count / run; ++row) {
    // The row's place in the box, slowest dimension first, gives its global index.
    std::int64_t rest = row;
    std::int64_t stride = 1;
    std::int64_t index = 0;
    for (std::size_t dim = rank; dim-- > 0;) {
      const bool last = dim + 1 == rank;
      const std::int64_t position = last ? 0 : rest % box_shape[dim];
      if (!last) rest /= box_shape[dim];
      index += (box_offset[dim] + position) * stride;
      stride *= global_shape[dim];
    }
    sum += content_checksum(
        type, bytes.subspan(static_cast<std::size_t>(row) * run_bytes, run_bytes),
        static_cast<std::uint64_t>(index));
  }
  return sum;
}

template std::uint64_t content_checksum(std::span<const float>, std::uint64_t);
template std::uint64_t content_checksum(std::span<const double>, std::uint64_t);

}  // namespace pleat::io
