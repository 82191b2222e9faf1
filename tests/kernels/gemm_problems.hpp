// SPDX-License-Identifier: Apache-2.0
#pragma once

/// \file
/// \brief Matrix products of many shapes, and what they must give.

#include <string>
#include <tuple>
#include <vector>

#include <fmt/format.h>

#include "pleat/kernels/gemm.hpp"
#include "reference.hpp"

namespace pleat::test {

using kernels::Transpose;

struct GemmProblem {
  Index m, n, k;
  Transpose transpose_a, transpose_b;
  double alpha, beta;
};

inline bool is_yes(Transpose transpose) { return transpose == Transpose::kYes; }

inline std::vector<GemmProblem> gemm_problems() {
  std::vector<std::tuple<Index, Index, Index>> sizes = {
      {1, 1, 1},     {1, 7, 5},      {5, 1, 3},     {13, 17, 19}, {64, 64, 64},
      {65, 63, 251}, {2, 251, 1},    {0, 3, 4},     {3, 0, 4},    {3, 4, 0},
      {0, 0, 0},     {130, 257, 33}, {31, 8, 7},    {7, 300, 9},  {129, 16, 65},
      {9, 20, 1100}, {3, 1040, 520}, {1160, 3, 520}};
  // Every height that the last strip of a block can have.
  for (Index m = 1; m <= 13; ++m) sizes.emplace_back(m, 70, 33);
  std::vector<GemmProblem> result;
  for (const auto& [m, n, k] : sizes) {
    for (const Transpose a : {Transpose::kNo, Transpose::kYes}) {
      for (const Transpose b : {Transpose::kNo, Transpose::kYes}) {
        result.push_back({m, n, k, a, b, 1.0, 0.0});
        result.push_back({m, n, k, a, b, -0.5, 2.0});
      }
    }
  }
  return result;
}

inline Values reference_gemm(const GemmProblem& p, const Values& a, const Values& b,
                             Values c) {
  for (Index i = 0; i < p.m; ++i) {
    for (Index j = 0; j < p.n; ++j) {
      double sum = 0.0;
      for (Index k = 0; k < p.k; ++k) {
        sum += a[is_yes(p.transpose_a) ? k * p.m + i : i * p.k + k] *
               b[is_yes(p.transpose_b) ? j * p.k + k : k * p.n + j];
      }
      c[i * p.n + j] = p.alpha * sum + (p.beta == 0.0 ? 0.0 : p.beta * c[i * p.n + j]);
    }
  }
  return c;
}

inline std::string describe(const GemmProblem& p) {
  return fmt::format("{} x {} x {}, transposed {} {}, beta {}", p.m, p.n, p.k,
                     is_yes(p.transpose_a), is_yes(p.transpose_b), p.beta);
}

}  // namespace pleat::test
