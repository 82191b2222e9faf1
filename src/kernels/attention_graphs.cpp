// SPDX-License-Identifier: Apache-2.0
//
// cuDNN through the graph interface of its header-only frontend. The library itself is opened
// at run time, so that programs start where it is absent. Compiled alone, by the host compiler
// (CMakeLists.txt); as a source of the module it is empty.
#include "attention_graphs.hpp"

#if defined(PLEAT_CUDNN_GRAPHS)

#include <array>
#include <cstdlib>
#include <exception>
#include <string>
#include <utility>
#include <vector>

#include <cudnn_frontend.h>
#include <cuda_runtime_api.h>
#include <dlfcn.h>

namespace cudnn_frontend {
void* cudnn_dlhandle = nullptr;  // where the frontend looks for the functions of cuDNN
}

namespace pleat::kernels {
namespace {

namespace fe = cudnn_frontend;
using Tensor = std::shared_ptr<fe::graph::Tensor_attributes>;
using Extents = std::vector<std::int64_t>;

/// Order in which the frontend takes the arrays of a call.
enum Uid : std::int64_t { kQ = 1, kK, kV, kO, kLse, kDo, kDq, kDk, kDv };

/// Of two runtimes that it finds the frontend would take the older one, which need not be this
/// program's, unless a variable names one: set before there are threads that read it.
[[maybe_unused]] const int kRuntimeIsNamed =
    setenv("CUDNN_FRONTEND_CUDART_LIB_NAME",
           ("libcudart.so." + std::to_string(CUDART_VERSION / 1000)).c_str(), 0);

/// Opens cuDNN once; false where it is not here.
bool is_open() {
  static const bool opened = [] {
    fe::cudnn_dlhandle = dlopen("libcudnn.so.9", RTLD_NOW | RTLD_LOCAL);
    return fe::cudnn_dlhandle != nullptr;
  }();
  return opened;
}

/// What went wrong; empty where nothing did.
std::string reason(fe::error_t error) {  // get_message() is not const
  if (error.is_good()) return "";
  const std::string text = error.get_message();
  return text.empty() ? "the library does not say why" : text;
}

/// The tensors of a graph, as cuDNN has them: sequence, head, row, element of a head.
class Tensors {
 public:
  Tensors(fe::graph::Graph& graph, const GraphShape& shape)
      : graph_(graph), shape_(shape) {}

  Tensor input(const char* name, Uid uid, std::int64_t heads, std::int64_t stride) {
    return graph_.tensor(describe(fe::graph::Tensor_attributes(), uid, heads, stride)
                             .set_name(name)
                             .set_data_type(fe::DataType_t::BFLOAT16));
  }
  void output(const Tensor& tensor, Uid uid, std::int64_t heads, std::int64_t stride) {
    describe(*tensor, uid, heads, stride)
        .set_output(true)
        .set_data_type(fe::DataType_t::BFLOAT16);
  }
  Tensor lse_input() {
    return graph_.tensor(describe_lse(fe::graph::Tensor_attributes()).set_name("lse"));
  }
  void lse_output(const Tensor& tensor) { describe_lse(*tensor).set_output(true); }

 private:
  template <class Attributes>
  std::remove_reference_t<Attributes>& describe(Attributes&& tensor, Uid uid,
                                                std::int64_t heads, std::int64_t stride) {
    return tensor.set_uid(uid)
        .set_dim({1, heads, shape_.sequence, shape_.head_dim})
        .set_stride({shape_.sequence * stride, shape_.head_dim, stride, 1});
  }
  template <class Attributes>
  std::remove_reference_t<Attributes>& describe_lse(Attributes&& tensor) {
    return tensor.set_uid(kLse)
        .set_dim({1, shape_.heads, shape_.sequence, 1})
        .set_stride({shape_.heads * shape_.lse_stride, shape_.lse_stride, 1, 1})
        .set_data_type(fe::DataType_t::FLOAT);
  }

  fe::graph::Graph& graph_;
  const GraphShape& shape_;
};

void add_forward(fe::graph::Graph& graph, const GraphShape& x) {
  Tensors tensors(graph, x);
  const auto [o, lse] =
      graph.sdpa(tensors.input("q", kQ, x.heads, x.q_stride),
                 tensors.input("k", kK, x.kv_heads, x.kv_stride),
                 tensors.input("v", kV, x.kv_heads, x.kv_stride),
                 fe::graph::SDPA_attributes()
                     .set_name("attention")
                     .set_generate_stats(true)
                     .set_attn_scale(x.scale)
                     .set_diagonal_alignment(fe::DiagonalAlignment_t::TOP_LEFT)
                     .set_diagonal_band_right_bound(0));
  tensors.output(o, kO, x.heads, x.o_stride);
  tensors.lse_output(lse);
}

/// Always the deterministic algorithm: the same run gives the same bits.
void add_backward(fe::graph::Graph& graph, const GraphShape& x) {
  Tensors tensors(graph, x);
  const auto [dq, dk, dv] = graph.sdpa_backward(
      tensors.input("q", kQ, x.heads, x.q_stride),
      tensors.input("k", kK, x.kv_heads, x.kv_stride),
      tensors.input("v", kV, x.kv_heads, x.kv_stride),
      tensors.input("o", kO, x.heads, x.o_stride),
      tensors.input("do", kDo, x.heads, x.do_stride), tensors.lse_input(),
      fe::graph::SDPA_backward_attributes()
          .set_name("attention backward")
          .set_attn_scale(x.scale)
          .set_deterministic_algorithm(true)
          .set_diagonal_alignment(fe::DiagonalAlignment_t::TOP_LEFT)
          .set_diagonal_band_right_bound(0));
  tensors.output(dq, kDq, x.heads, x.dq_stride);
  tensors.output(dk, kDk, x.kv_heads, x.dkv_stride);
  tensors.output(dv, kDv, x.kv_heads, x.dkv_stride);
}

/// \brief The graph of a shape up to the question whether the library has engines for it.
/// \param handle  null where `graph` has been told of a device
fe::error_t describe_and_check(fe::graph::Graph& graph, const GraphShape& shape,
                               cudnnHandle_t handle) {
  graph.set_io_data_type(fe::DataType_t::BFLOAT16)
      .set_intermediate_data_type(fe::DataType_t::FLOAT)
      .set_compute_data_type(fe::DataType_t::FLOAT);
  if (shape.backward) {
    add_backward(graph, shape);
  } else {
    add_forward(graph, shape);
  }
  fe::error_t error = graph.validate();
  if (error.is_good()) error = graph.build_operation_graph(handle);
  if (error.is_good()) error = graph.create_execution_plans({fe::HeurMode_t::A});
  if (error.is_good()) error = graph.check_support();
  return error;
}

class CudnnGraph final : public AttentionGraph {
 public:
  explicit CudnnGraph(cudnnHandle_t handle, bool backward)
      : handle_(handle), backward_(backward) {}

  /// \return why there is no plan; empty where there is one
  std::string plan(const GraphShape& shape) {
    fe::error_t error = describe_and_check(graph_, shape, handle_);
    if (error.is_good()) error = graph_.build_plans();
    if (error.is_good()) error = graph_.get_workspace_size(bytes_);
    if (error.is_good() && bytes_ < 0) return "it does not say how much memory it wants";
    return reason(error);
  }
  std::size_t workspace_bytes() const override {
    return static_cast<std::size_t>(bytes_);
  }
  std::string run(const GraphArrays& x, void* workspace) const override try {
    std::array<void*, 9> arrays{x.q, x.k, x.v, x.o, x.lse, x.d_o, x.dq, x.dk, x.dv};
    const int count = backward_ ? 9 : 5;
    return reason(graph_.execute(handle_, arrays.data(), count, workspace));
  } catch (const std::exception& error) {  // as in plan()
    return error.what();
  }

 private:
  cudnnHandle_t handle_;
  bool backward_;
  fe::graph::Graph graph_;
  std::int64_t bytes_ = 0;
};

class CudnnGraphs final : public AttentionGraphs {
 public:
  CudnnGraphs() = default;
  ~CudnnGraphs() override {
    if (handle_ != nullptr) (void)fe::detail::destroy_handle(handle_);
  }
  CudnnGraphs(const CudnnGraphs&) = delete;
  CudnnGraphs& operator=(const CudnnGraphs&) = delete;

  bool open(void* stream) {
    return fe::detail::create_handle(&handle_) == CUDNN_STATUS_SUCCESS &&
           fe::detail::set_stream(handle_, static_cast<cudaStream_t>(stream)) ==
               CUDNN_STATUS_SUCCESS;
  }
  AttentionPlan plan(const GraphShape& shape) override try {
    auto graph = std::make_unique<CudnnGraph>(handle_, shape.backward);
    const std::string refusal = graph->plan(shape);
    if (!refusal.empty()) return {.graph = nullptr, .refusal = refusal};
    return {.graph = std::move(graph), .refusal = ""};
  } catch (const std::exception& error) {  // a function that an older cuDNN does not have
    return {.graph = nullptr, .refusal = error.what()};
  }

 private:
  cudnnHandle_t handle_ = nullptr;
};

}  // namespace

std::unique_ptr<AttentionGraphs> open_attention_graphs(void* stream) try {
  if (!is_open()) return nullptr;
  auto graphs = std::make_unique<CudnnGraphs>();
  return graphs->open(stream) ? std::move(graphs) : nullptr;
} catch (const std::exception&) {  // no runtime of CUDA
  return nullptr;
}

std::string attention_graph_library() try {
  if (!is_open()) return "";
  const std::size_t version = fe::detail::get_backend_version();
  return "cuDNN " + std::to_string(version / 10000) + "." +
         std::to_string(version / 100 % 100) + "." + std::to_string(version % 100);
} catch (const std::exception&) {
  return "";
}

std::string refusal_without_device(const GraphShape& shape, const std::string& device,
                                   int compute_capability) try {
  if (!is_open()) return "cuDNN is not on this machine";
  const auto properties = std::make_shared<fe::DeviceProperties>();
  fe::error_t error = properties->deserialize({device.begin(), device.end()});
  if (error.is_bad()) return "it knows no such device: " + reason(error);
  fe::graph::Graph graph;
  graph.set_device_properties(properties).set_sm_version(compute_capability);
  error = describe_and_check(graph, shape, nullptr);
  return reason(error);
} catch (const std::exception& error) {
  return error.what();
}

}  // namespace pleat::kernels

#endif
