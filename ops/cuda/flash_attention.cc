// SPDX-License-Identifier: Apache-2.0
#include "ops/cuda/flash_attention.h"

#include <cuda_runtime_api.h>
#include <cudnn_frontend.h>

#include <array>
#include <bit>
#include <limits>
#include <map>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/strings/str_cat.h"
#include "absl/synchronization/mutex.h"
#include "ops/array_checks.h"
#include "ops/attention_work.h"
#include "ops/cuda/kernels.h"

namespace tandem::ops::cuda {
namespace {

using cudnn_frontend::DataType_t;
using cudnn_frontend::graph::Graph;
using cudnn_frontend::graph::Tensor_attributes;
using device::Bf16;
using TensorPtr = std::shared_ptr<Tensor_attributes>;
using Pointers = std::unordered_map<int64_t, void*>;

// The ids of the graphs' tensors.
enum Uid : int64_t { kQ = 1, kK, kV, kContext, kLse, kGradContext, kGradQ, kGradK, kGradV, kStarts };

void CheckCudnn(cudnn_frontend::error_t error, const char* what) {
  Check(error.is_good(), "attention by cuDNN: ", what, ": ", error.get_message());
}

void CheckCudnn(cudnnStatus_t status, const char* what) {
  Check(status == CUDNN_STATUS_SUCCESS, "attention by cuDNN: ", what, ": ", cudnnGetErrorString(status));
}

// The places of the heads in a matrix of attention.h: [sequences, heads, length, head_dim].
struct Layout {
  AttentionShape whole;  // the shape of the matrices
  AttentionShape part;   // the shape that one call computes

  TensorPtr Heads(Graph& graph, Uid uid, int64_t heads, int64_t row) const {
    return graph.tensor(Attributes(uid, heads, row));
  }
  void SetHeads(const TensorPtr& output, Uid uid, int64_t heads, int64_t row) const {
    const Tensor_attributes as = Attributes(uid, heads, row);
    output->set_output(true).set_uid(uid).set_dim(as.get_dim()).set_stride(as.get_stride());
  }
  // A part of several sequences has all heads, so its statistics are contiguous.
  TensorPtr Lse(Graph& graph) const {
    return graph.tensor(Tensor_attributes()
                            .set_uid(kLse)
                            .set_data_type(DataType_t::FLOAT)
                            .set_dim({part.sequences, part.heads, part.length, 1})
                            .set_stride({part.heads * part.length, part.length, 1, 1}));
  }
  void SetLse(const TensorPtr& output) const {
    output->set_output(true)
        .set_uid(kLse)
        .set_data_type(DataType_t::FLOAT)
        .set_dim({part.sequences, part.heads, part.length, 1})
        .set_stride({part.heads * part.length, part.length, 1, 1});
  }

  // int32, because the indices with which they are compared are.
  TensorPtr Starts(Graph& graph) const {
    return graph.tensor(Tensor_attributes()
                            .set_uid(kStarts)
                            .set_data_type(DataType_t::INT32)
                            .set_dim({part.sequences, 1, part.length, 1})
                            .set_stride({part.length, part.length, 1, 1}));
  }

 private:
  Tensor_attributes Attributes(Uid uid, int64_t heads, int64_t row) const {
    return Tensor_attributes()
        .set_uid(uid)
        .set_dim({part.sequences, heads, part.length, part.head_dim})
        .set_stride({whole.length * row, whole.head_dim, row, 1});
  }
};

std::unique_ptr<Graph> EmptyGraph() {
  auto graph = std::make_unique<Graph>();
  graph->set_io_data_type(DataType_t::BFLOAT16)
      .set_intermediate_data_type(DataType_t::FLOAT)
      .set_compute_data_type(DataType_t::FLOAT);
  return graph;
}

// Masks scores [B, heads, S, S], tile by tile: keeps the columns from the document's start to the row
// itself; the others become -inf. starts: [B, 1, S, 1]. The causal mask comes last and must be the library's
// own: only then do its engines recognise it and skip the tiles above the diagonal.
TensorPtr WithinDocuments(const std::shared_ptr<Graph>& graph, const TensorPtr& scores,
                          const TensorPtr& starts) {
  using cudnn_frontend::PointwiseMode_t;
  using cudnn_frontend::graph::Pointwise_attributes;
  const TensorPtr column = graph->pointwise(scores, Pointwise_attributes()
                                                        .set_name("column")
                                                        .set_mode(PointwiseMode_t::GEN_INDEX)
                                                        .set_axis(3)
                                                        .set_compute_data_type(DataType_t::INT32));
  column->set_data_type(DataType_t::INT32);
  const TensorPtr own = graph->pointwise(column, starts,
                                         Pointwise_attributes()
                                             .set_name("own document")
                                             .set_mode(PointwiseMode_t::CMP_GE)
                                             .set_compute_data_type(DataType_t::BOOLEAN));
  own->set_data_type(DataType_t::BOOLEAN);
  const auto nothing = std::make_shared<Tensor_attributes>(-std::numeric_limits<float>::infinity());
  const TensorPtr within = graph->pointwise(
      scores, nothing, own,
      Pointwise_attributes().set_name("within documents").set_mode(PointwiseMode_t::BINARY_SELECT));
  return cudnn_frontend::graph::attn::score_modifiers::causal_mask(graph, within);
}

// Sets the mask of the scores: causal and, if the shape has documents, within them.
template <typename Options>
void SetMask(Graph& graph, const Layout& layout, Options& options) {
  if (!layout.part.documents) {
    options.set_causal_mask(true);
    return;
  }
  // The backward needs no mask of its own, because gradients of scores are products with probabilities,
  // which are 0.
  options.set_score_mod(
      [starts = layout.Starts(graph)](const std::shared_ptr<Graph>& tile, const TensorPtr& scores) {
        return WithinDocuments(tile, scores, starts);
      });
}

std::unique_ptr<Graph> ForwardGraph(const Layout& layout) {
  auto graph = EmptyGraph();
  const AttentionShape& part = layout.part;
  const TensorPtr q = layout.Heads(*graph, kQ, part.heads, layout.whole.qkv_columns());
  const TensorPtr k = layout.Heads(*graph, kK, part.kv_heads, layout.whole.qkv_columns());
  const TensorPtr v = layout.Heads(*graph, kV, part.kv_heads, layout.whole.qkv_columns());
  auto options = cudnn_frontend::graph::SDPA_attributes().set_generate_stats(true).set_attn_scale(
      static_cast<float>(AttentionScale(part)));
  SetMask(*graph, layout, options);
  const auto [context, lse] = graph->sdpa(q, k, v, options);
  layout.SetHeads(context, kContext, part.heads, layout.whole.context_columns());
  layout.SetLse(lse);
  return graph;
}

std::unique_ptr<Graph> BackwardGraph(const Layout& layout) {
  auto graph = EmptyGraph();
  const AttentionShape& part = layout.part;
  const TensorPtr q = layout.Heads(*graph, kQ, part.heads, layout.whole.qkv_columns());
  const TensorPtr k = layout.Heads(*graph, kK, part.kv_heads, layout.whole.qkv_columns());
  const TensorPtr v = layout.Heads(*graph, kV, part.kv_heads, layout.whole.qkv_columns());
  const TensorPtr context = layout.Heads(*graph, kContext, part.heads, layout.whole.context_columns());
  const TensorPtr grad_context =
      layout.Heads(*graph, kGradContext, part.heads, layout.whole.context_columns());
  auto options = cudnn_frontend::graph::SDPA_backward_attributes()
                     .set_attn_scale(static_cast<float>(AttentionScale(part)))
                     .set_deterministic_algorithm(part.repeats);
  SetMask(*graph, layout, options);
  const auto [grad_q, grad_k, grad_v] =
      graph->sdpa_backward(q, k, v, context, grad_context, layout.Lse(*graph), options);
  layout.SetHeads(grad_q, kGradQ, part.heads, layout.whole.qkv_columns());
  layout.SetHeads(grad_k, kGradK, part.kv_heads, layout.whole.qkv_columns());
  layout.SetHeads(grad_v, kGradV, part.kv_heads, layout.whole.qkv_columns());
  return graph;
}

void CheckCuda(int error, const char* what) {
  Check(error == cudaSuccess, "attention: ", what, ": ", cudaGetErrorString(static_cast<cudaError_t>(error)));
}

int CurrentGpu() {
  int device = 0;
  CheckCuda(cudaGetDevice(&device), "the current GPU");
  return device;
}

// Takes the front of `work` for the starts of documents in the form that the graphs read, [B, S]. Returns
// null if the shape has no documents.
int32_t* TakeStarts(const AttentionShape& shape, Workspace& work) {
  if (!shape.documents) {
    return nullptr;
  }
  const int64_t bytes = FlashStartsBytes(shape);
  Check(work.bytes >= bytes, "attention needs ", bytes, " bytes of work memory for documents' starts");
  auto* const taken = static_cast<int32_t*>(work.begin);
  work = {.begin = static_cast<char*>(work.begin) + bytes, .bytes = work.bytes - bytes};
  return taken;
}

}  // namespace

// Keeps the graphs of all shapes and GPUs.
class FlashAttention::Graphs {
 public:
  struct Entry {
    std::unique_ptr<Graph> graph;
    int64_t work_bytes = 0;
  };

  // Calls body(handle, entry), one call at a time, because a handle serves one thread and has one stream.
  template <typename Body>
  void With(const AttentionShape& shape, bool backward, const Body& body) ABSL_LOCKS_EXCLUDED(mu_) {
    const int device = CurrentGpu();
    const absl::MutexLock lock(&mu_);
    cudnnHandle_t& handle = handles_[device];
    if (handle == nullptr) {
      CheckCudnn(cudnnCreate(&handle), "no handle");
    }
    Entry& entry =
        entries_[{device, backward, shape.sequences, shape.length, shape.heads, shape.kv_heads,
                  shape.head_dim, shape.repeats, shape.documents, std::bit_cast<int64_t>(shape.scale)}];
    if (entry.graph == nullptr) {
      std::unique_ptr<Graph> graph =
          backward ? BackwardGraph({shape, FlashBackwardPart(shape)}) : ForwardGraph({shape, shape});
      CheckCudnn(graph->build(handle, {cudnn_frontend::HeurMode_t::A}),
                 backward ? "no kernels for the backward" : "no kernels");
      CheckCudnn(graph->get_workspace_size(entry.work_bytes), "no size of its work memory");
      entry.graph = std::move(graph);
    }
    body(handle, entry);
  }

  // Binds a pass: the shape's graph once for each of `parts`. If there are documents, their starts are
  // converted first, and each part reads them from its row on.
  FlashAttention::Bound Bind(const AttentionShape& shape, bool backward, const DocumentStarts& documents,
                             Workspace work, std::vector<std::pair<int64_t, Pointers>> parts) {
    int32_t* const starts = TakeStarts(shape, work);
    cudnnHandle_t handle = nullptr;
    Graph* graph = nullptr;
    With(shape, backward, [&](cudnnHandle_t the_handle, const Entry& entry) {
      Check(entry.work_bytes <= work.bytes, "attention needs ", entry.work_bytes,
            " bytes of work memory, not ", work.bytes);
      handle = the_handle;
      graph = entry.graph.get();
    });
    for (auto& [row, pointers] : parts) {
      if (shape.documents) {
        pointers[kStarts] = starts + row;
      }
    }
    return [this, shape, documents, starts, work, handle, graph,
            parts = std::move(parts)](CUstream_st* stream) mutable {
      if (starts != nullptr) {
        CheckCuda(CopyStarts(documents, shape.sequences, shape.length, starts, stream), "documents' starts");
      }
      const absl::MutexLock lock(&mu_);
      CheckCudnn(cudnnSetStream(handle, stream), "its stream");
      for (auto& [row, pointers] : parts) {
        CheckCudnn(graph->execute(handle, pointers, work.begin), "the call");
      }
    };
  }

 private:
  absl::Mutex mu_;
  // Never destroyed, as LibTorch's own handles are not: cuDNN may be gone when statics are destroyed.
  std::map<int, cudnnHandle_t> handles_ ABSL_GUARDED_BY(mu_);
  std::map<std::array<int64_t, 10>, Entry> entries_ ABSL_GUARDED_BY(mu_);
};

bool FlashAttention::Computes(const AttentionShape& shape) {
  if (IsFlashAttention(shape, sizeof(Bf16), kFlashHeadDim)) {
    return true;
  }
  if (!IsFlashAttention(shape, sizeof(Bf16), kHopperFlashHeadDim)) {
    return false;
  }
  int major = 0;
  CheckCuda(cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, CurrentGpu()),
            "the GPU's capability");
  return major == 9;
}

FlashAttention::FlashAttention() : graphs_(std::make_unique<Graphs>()) {}
FlashAttention::~FlashAttention() = default;

void FlashAttention::Prepare(const AttentionShape& shape) {
  for (const bool backward : {false, true}) {
    const int64_t promised = backward ? AttentionBackwardWorkBytes(DeviceKind::kGpu, shape, sizeof(Bf16))
                                      : AttentionWorkBytes(DeviceKind::kGpu, shape, sizeof(Bf16));
    graphs_->With(shape, backward, [&](cudnnHandle_t, const Graphs::Entry& entry) {
      Check(entry.work_bytes + FlashStartsBytes(shape) <= promised, "attention by cuDNN: the ",
            backward ? "backward" : "forward", " of ", shape.sequences, " sequences of ", shape.length,
            " tokens, ", shape.heads, ":", shape.kv_heads, " heads of ", shape.head_dim, " needs ",
            entry.work_bytes, " bytes of work memory, and the plan has ", promised);
    });
  }
}

FlashAttention::Bound FlashAttention::Bind(const AttentionArgs<Bf16>& args) {
  const AttentionShape& shape = args.shape;
  Bf16* const q = const_cast<Bf16*>(args.qkv);
  Pointers pointers = {{kQ, q},
                       {kK, q + shape.heads * shape.head_dim},
                       {kV, q + (shape.heads + shape.kv_heads) * shape.head_dim},
                       {kContext, args.context},
                       {kLse, args.lse}};
  return graphs_->Bind(shape, /*backward=*/false, args.documents, args.work, {{0, std::move(pointers)}});
}

FlashAttention::Bound FlashAttention::Bind(const AttentionBackwardArgs<Bf16>& args) {
  const AttentionShape& shape = args.shape;
  const AttentionShape part = FlashBackwardPart(shape);
  const int64_t group = shape.heads / shape.kv_heads;
  const int64_t width = shape.qkv_columns();
  std::vector<std::pair<int64_t, Pointers>> parts;
  for (int64_t sequence = 0; sequence < shape.sequences; sequence += part.sequences) {
    for (int64_t kv_head = 0; kv_head < shape.kv_heads; kv_head += part.kv_heads) {
      const int64_t row = sequence * shape.length;
      const int64_t q = row * width + kv_head * group * shape.head_dim;
      const int64_t k = row * width + (shape.heads + kv_head) * shape.head_dim;
      const int64_t v = k + shape.kv_heads * shape.head_dim;
      const int64_t c = (row * shape.heads + kv_head * group) * shape.head_dim;
      const int64_t statistics = (sequence * shape.heads + kv_head * group) * shape.length;
      parts.emplace_back(row, Pointers{{kQ, const_cast<Bf16*>(args.qkv + q)},
                                       {kK, const_cast<Bf16*>(args.qkv + k)},
                                       {kV, const_cast<Bf16*>(args.qkv + v)},
                                       {kContext, const_cast<Bf16*>(args.context + c)},
                                       {kLse, const_cast<float*>(args.lse + statistics)},
                                       {kGradContext, const_cast<Bf16*>(args.grad_context + c)},
                                       {kGradQ, args.grad_qkv + q},
                                       {kGradK, args.grad_qkv + k},
                                       {kGradV, args.grad_qkv + v}});
    }
  }
  return graphs_->Bind(shape, /*backward=*/true, args.documents, args.work, std::move(parts));
}

std::string FlashAttention::Version() { return absl::StrCat("cuDNN ", cudnnGetVersion()); }

}  // namespace tandem::ops::cuda
