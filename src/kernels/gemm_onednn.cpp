// SPDX-License-Identifier: Apache-2.0
#include "gemm_onednn.hpp"

#if defined(PLEAT_ONEDNN_GEMM)

#include <map>
#include <tuple>
#include <type_traits>

#include <oneapi/dnnl/dnnl.hpp>

namespace pleat::kernels {
namespace {

using dnnl::memory;

template <class T>
constexpr memory::data_type kTypeOf =
    std::is_same_v<T, Bf16> ? memory::data_type::bf16 : memory::data_type::f32;

/// What a primitive depends on. Numbers of rows change from step to step where experts
/// are concerned, so many primitives are kept, but not all.
using Key = std::tuple<std::int64_t, std::int64_t, std::int64_t, bool, bool, std::int64_t,
                       std::int64_t, std::int64_t, float>;

template <class T, class C>
Key key_of(const HostProduct<T, T, C>& x) {
  return {x.m,
          x.n,
          x.k,
          x.transpose_a == Transpose::kYes,
          x.transpose_b == Transpose::kYes,
          x.a_stride,
          x.b_stride,
          x.c_stride,
          x.beta};
}

struct Primitive {
  dnnl::matmul matmul;
  memory::desc a, b, c;
};

/// [rows, columns] of op(x), where x is stored with its rows `stride` apart.
memory::desc description(std::int64_t rows, std::int64_t columns, memory::data_type type,
                         bool transposed, std::int64_t stride) {
  const memory::dims strides =
      transposed ? memory::dims{1, stride} : memory::dims{stride, 1};
  return {{rows, columns}, type, strides};
}

template <class T, class C>
Primitive make_primitive(const HostProduct<T, T, C>& x, const dnnl::engine& engine) {
  Primitive made;
  made.a =
      description(x.m, x.k, kTypeOf<T>, x.transpose_a == Transpose::kYes, x.a_stride);
  made.b =
      description(x.k, x.n, kTypeOf<T>, x.transpose_b == Transpose::kYes, x.b_stride);
  made.c = description(x.m, x.n, kTypeOf<C>, false, x.c_stride);
  dnnl::primitive_attr attributes;
  if (x.beta != 0.0F) {
    dnnl::post_ops sum;
    sum.append_sum(x.beta);
    attributes.set_post_ops(sum);
  }
#if DNNL_VERSION_MAJOR >= 3
  const dnnl::matmul::primitive_desc how(engine, made.a, made.b, made.c, attributes);
#else
  const dnnl::matmul::primitive_desc how({made.a, made.b, made.c}, attributes, engine);
#endif
  made.matmul = dnnl::matmul(how);
  return made;
}

/// One thread's primitives and stream.
template <class T, class C>
class Library {
 public:
  void multiply(const HostProduct<T, T, C>& x) {
    const Primitive& how = primitive(x);
    // The library takes pointers to what it only reads without const.
    memory a(how.a, engine_, const_cast<T*>(x.a));
    memory b(how.b, engine_, const_cast<T*>(x.b));
    memory c(how.c, engine_, x.c);
    how.matmul.execute(stream_,
                       {{DNNL_ARG_SRC, a}, {DNNL_ARG_WEIGHTS, b}, {DNNL_ARG_DST, c}});
    stream_.wait();
  }

 private:
  const Primitive& primitive(const HostProduct<T, T, C>& x) {
    constexpr std::size_t kMost = 1024;
    const Key key = key_of(x);
    const auto found = primitives_.find(key);
    if (found != primitives_.end()) return found->second;
    if (primitives_.size() >= kMost) primitives_.clear();
    return primitives_.emplace(key, make_primitive(x, engine_)).first->second;
  }

  dnnl::engine engine_{dnnl::engine::kind::cpu, 0};
  dnnl::stream stream_{engine_};
  std::map<Key, Primitive> primitives_;
};

}  // namespace

namespace {

bool cpu_has(dnnl::cpu_isa wanted) {
  const auto isa = static_cast<unsigned>(dnnl::get_effective_cpu_isa());
  const auto needed = static_cast<unsigned>(wanted);
  return (isa & needed) == needed;
}

}  // namespace

bool has_fast_bf16() {
  static const bool known = cpu_has(dnnl::cpu_isa::avx512_core_bf16);
  return known;
}

bool is_onednn_quickest() {
#if defined(PLEAT_PACKED_GEMM) && defined(__AVX512BF16__)
  static const bool known = cpu_has(dnnl::cpu_isa::avx512_core_amx);
  return known;
#else
  return has_fast_bf16();
#endif
}

template <class T, class C>
bool onednn_gemm(const HostProduct<T, T, C>& product) {
  if (product.alpha != 1.0F) return false;
  thread_local Library<T, C> library;
  try {
    library.multiply(product);
  } catch (const dnnl::error& error) {
    if (error.status == dnnl_unimplemented) return false;
    throw;
  }
  return true;
}

#define PLEAT_INSTANTIATE(T, C) template bool onednn_gemm(const HostProduct<T, T, C>&);
PLEAT_INSTANTIATE(Bf16, Bf16)
PLEAT_INSTANTIATE(Bf16, float)
PLEAT_INSTANTIATE(float, float)  // for the tests on CPUs without bf16
#undef PLEAT_INSTANTIATE

}  // namespace pleat::kernels

#endif
