// SPDX-License-Identifier: Apache-2.0
#pragma once

/// \file
/// \brief cuBLASLt's grouped product, as the library found at run time has it: products
/// whose shapes and matrices are read from arrays of the device, all in one call.
///
/// It came, as an experiment, with cuBLAS 13.2; a build with an older toolkit uses it
/// where the library is newer. What the headers of 13.2, 13.4, 13.5, 13.6, 13.7, 13.8
/// and 13.10 agree on is declared here, and compared with the header where that is new
/// enough.

#include <array>
#include <cstddef>
#include <cstdint>
#include <type_traits>

#include <cublasLt.h>
#include <dlfcn.h>

namespace pleat::kernels::cublaslt {

/// \brief Whether a library of that version (cublasLtGetVersion) has the product without
/// an error that is known. On Hopper it came with 13.4.0; until 13.6.1 a second call over
/// the same workspace may hang; until 13.6.2, and again in 13.7, alpha and beta of the
/// host may give wrong sums (NVIDIA's release notes and patch release notes of cuBLAS,
/// numbers 6456362 and 6681084); those of the device are used, and yet the bounds kept.
/// An experiment may look otherwise in the next major version.
constexpr bool has_sound_groups(std::size_t version) {
  return (version >= 13'06'02 && version < 13'07'00) ||
         (version >= 13'08'00 && version < 14'00'00);
}

/// \brief What the averages over all groups are told as, in std::int64_t: the headers'
/// comments have uint32_t, which the libraries refuse.
constexpr auto kAverageSum = static_cast<cublasLtMatmulPreferenceAttributes_t>(13);
constexpr auto kAverageRows = static_cast<cublasLtMatmulPreferenceAttributes_t>(14);
constexpr auto kAverageColumns = static_cast<cublasLtMatmulPreferenceAttributes_t>(15);

/// \brief Room for a descriptor: older headers have less than a newer library wants.
template <class Descriptor, std::size_t kWords>
class Room {
 public:
  Descriptor* get() { return reinterpret_cast<Descriptor*>(words_.data()); }
  static constexpr std::size_t bytes() { return sizeof(std::uint64_t) * kWords; }
  static_assert(sizeof(Descriptor) <= bytes());

 private:
  std::array<std::uint64_t, kWords> words_{};
};
using GroupedLayout = Room<cublasLtMatrixLayoutOpaque_t, 14>;
using GroupedPreference = Room<cublasLtMatmulPreferenceOpaque_t, 12>;

/// \brief What cublasLtGroupedMatrixLayoutInit() of the newer headers calls. The arrays,
/// of std::int32_t, lie on the device.
using GroupedLayoutInit = cublasStatus_t (*)(cublasLtMatrixLayout_t layout,
                                             std::size_t bytes, cudaDataType type,
                                             int groups, const void* rows,
                                             const void* columns, const void* strides);

#if defined(CUBLAS_VERSION) && CUBLAS_VERSION >= 130200
static_assert(kAverageSum == CUBLASLT_MATMUL_PREF_GROUPED_AVERAGE_REDUCTION_DIM);
static_assert(kAverageRows == CUBLASLT_MATMUL_PREF_GROUPED_DESC_D_AVERAGE_ROWS);
static_assert(kAverageColumns == CUBLASLT_MATMUL_PREF_GROUPED_DESC_D_AVERAGE_COLS);
static_assert(GroupedLayout::bytes() == sizeof(cublasLtMatrixLayoutOpaque_t));
static_assert(GroupedPreference::bytes() == sizeof(cublasLtMatmulPreferenceOpaque_t));
static_assert(CUBLASLT_INTEGER_WIDTH_32 == 0);  // what a layout begins with
static_assert(std::is_same_v<GroupedLayoutInit,
                             decltype(&cublasLtGroupedMatrixLayoutInit_internal)>);
#endif

/// \brief The function of the library that is loaded; null where it has none.
inline GroupedLayoutInit grouped_layout_init() {
  static void* const found =
      dlsym(RTLD_DEFAULT, "cublasLtGroupedMatrixLayoutInit_internal");
  return reinterpret_cast<GroupedLayoutInit>(found);
}

}  // namespace pleat::kernels::cublaslt
