// SPDX-License-Identifier: Apache-2.0
// attention_graphs.hpp by loops over host memory, which do store rows of S numbers.
#include "attention_graphs.hpp"

#include <algorithm>
#include <cmath>
#include <vector>

#include "pleat/base/bf16.hpp"
#include "stand_in/attention_switches.hpp"

namespace pleat::test {

AttentionStandIn& attention_stand_in() {
  static AttentionStandIn stand_in;
  return stand_in;
}

}  // namespace pleat::test

namespace pleat::kernels {
namespace {

using Index = std::int64_t;

/// The vector of a head in a row.
Bf16* at(void* first, Index stride, Index row, Index head, Index head_dim) {
  return static_cast<Bf16*>(first) + row * stride + head * head_dim;
}

float dot(const Bf16* a, const Bf16* b, Index count) {
  float sum = 0.0F;
  for (Index i = 0; i < count; ++i) sum += float(a[i]) * float(b[i]);
  return sum;
}

class SerialGraph final : public AttentionGraph {
 public:
  explicit SerialGraph(const GraphShape& shape) : x_(shape) {}
  std::size_t workspace_bytes() const override {
    return test::attention_stand_in().workspace_bytes;
  }

  std::string run(const GraphArrays& a, void* workspace) const override {
    auto& stand_in = test::attention_stand_in();
    ++stand_in.run;
    if (stand_in.fails || workspace == nullptr) return "the stand-in was told to";
    std::vector<float> dk(static_cast<std::size_t>(x_.sequence * x_.head_dim)), dv;
    for (Index g = 0; g < x_.kv_heads; ++g) {
      dk.assign(dk.size(), 0.0F), dv = dk;
      const Index group = x_.heads / x_.kv_heads;
      for (Index h = g * group; h < (g + 1) * group; ++h) {
        for (Index i = 0; i < x_.sequence; ++i) {
          if (x_.backward) {
            backward(a, h, g, i, dk, dv);
          } else {
            forward(a, h, g, i);
          }
        }
      }
      if (x_.backward) write_keys(a, g, dk, dv);
    }
    if (stand_in.gives_wrong_numbers) {
      Bf16* const wrong = static_cast<Bf16*>(x_.backward ? a.dk : a.o);
      wrong[3] = Bf16(float(wrong[3]) + 100.0F);
    }
    return "";
  }

 private:
  Bf16* q(const GraphArrays& a, Index i, Index h) const {
    return at(a.q, x_.q_stride, i, h, x_.head_dim);
  }
  Bf16* key(void* first, Index j, Index g) const {
    return at(first, x_.kv_stride, j, g, x_.head_dim);
  }
  float* lse(const GraphArrays& a, Index i, Index h) const {
    return static_cast<float*>(a.lse) + h * x_.lse_stride + i;
  }

  void forward(const GraphArrays& a, Index h, Index g, Index i) const {
    std::vector<float> p;
    float highest = -INFINITY, sum = 0.0F;
    for (Index j = 0; j <= i; ++j) {
      p.push_back(x_.scale * dot(q(a, i, h), key(a.k, j, g), x_.head_dim));
      highest = std::max(highest, p.back());
    }
    for (float& s : p) sum += s = std::exp(s - highest);
    std::vector<float> o(static_cast<std::size_t>(x_.head_dim));
    for (Index j = 0; j <= i; ++j) {
      for (Index d = 0; d < x_.head_dim; ++d) {
        o[d] += p[j] / sum * float(key(a.v, j, g)[d]);
      }
    }
    for (Index d = 0; d < x_.head_dim; ++d) {
      at(a.o, x_.o_stride, i, h, x_.head_dim)[d] = Bf16(o[d]);
    }
    *lse(a, i, h) = highest + std::log(sum);
  }

  void backward(const GraphArrays& a, Index h, Index g, Index i, std::vector<float>& dk,
                std::vector<float>& dv) const {
    const Index size = x_.head_dim;
    const Bf16* const d_o = at(a.d_o, x_.do_stride, i, h, size);
    const float delta = dot(at(a.o, x_.o_stride, i, h, size), d_o, size);
    std::vector<float> dq(static_cast<std::size_t>(size));
    for (Index j = 0; j <= i; ++j) {
      const float p =
          std::exp(x_.scale * dot(q(a, i, h), key(a.k, j, g), size) - *lse(a, i, h));
      const float ds = x_.scale * p * (dot(d_o, key(a.v, j, g), size) - delta);
      for (Index d = 0; d < size; ++d) {
        dq[d] += ds * float(key(a.k, j, g)[d]);
        dk[j * size + d] += ds * float(q(a, i, h)[d]);
        dv[j * size + d] += p * float(d_o[d]);
      }
    }
    for (Index d = 0; d < size; ++d) at(a.dq, x_.dq_stride, i, h, size)[d] = Bf16(dq[d]);
  }

  void write_keys(const GraphArrays& a, Index g, const std::vector<float>& dk,
                  const std::vector<float>& dv) const {
    for (Index j = 0; j < x_.sequence; ++j) {
      for (Index d = 0; d < x_.head_dim; ++d) {
        at(a.dk, x_.dkv_stride, j, g, x_.head_dim)[d] = Bf16(dk[j * x_.head_dim + d]);
        at(a.dv, x_.dkv_stride, j, g, x_.head_dim)[d] = Bf16(dv[j * x_.head_dim + d]);
      }
    }
  }

  GraphShape x_;
};

class SerialGraphs final : public AttentionGraphs {
 public:
  AttentionPlan plan(const GraphShape& shape) override {
    if (test::attention_stand_in().refuses) {
      return {.graph = nullptr, .refusal = "it was told to refuse"};
    }
    ++test::attention_stand_in().planned;
    return {.graph = std::make_unique<SerialGraph>(shape), .refusal = ""};
  }
};

}  // namespace

std::unique_ptr<AttentionGraphs> open_attention_graphs(void*) {
  return std::make_unique<SerialGraphs>();
}

std::string attention_graph_library() { return "stand-in"; }

}  // namespace pleat::kernels
