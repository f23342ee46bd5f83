#include "fsdp/cuda/shard_work.h"

#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/from_blob.h>
#include <ATen/ops/zeros.h>
#include <c10/cuda/CUDAStream.h>
#include <cuda_runtime_api.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include "comm/communicator.h"
#include "device/cuda/check.h"
#include "fsdp/cuda/kernels.h"
#include "fsdp/sharded_unit.h"

namespace tandem::fsdp {
namespace {

cuda::Stream Current() { return c10::cuda::getCurrentCUDAStream().stream(); }

at::Tensor OnGpu(int64_t bytes) {
  return at::zeros({bytes},
                   at::TensorOptions().dtype(at::kByte).device(at::kCUDA, c10::cuda::current_device()));
}

template <typename Element>
at::Tensor OnGpu(const std::vector<Element>& elements) {
  at::Tensor tensor = OnGpu(static_cast<int64_t>(elements.size() * sizeof(Element)));
  if (!elements.empty()) {
    tensor.copy_(at::from_blob(const_cast<Element*>(elements.data()), {tensor.numel()}, at::kByte));
  }
  return tensor;
}

template <typename Element>
Element* PointerTo(const at::Tensor& bytes) {
  return reinterpret_cast<Element*>(bytes.mutable_data_ptr<uint8_t>());
}

// Host memory that the GPU writes to.
template <typename Element>
class Pinned {
 public:
  explicit Pinned(size_t count) : count_(count) {
    void* memory = nullptr;
    device::CheckCuda(cudaMallocHost(&memory, std::max<size_t>(1, count) * sizeof(Element)),
                      "allocation of pinned memory");
    elements_ = static_cast<Element*>(memory);
    std::fill_n(elements_, count, Element{});
  }
  ~Pinned() { cudaFreeHost(elements_); }
  Pinned(const Pinned&) = delete;
  Pinned& operator=(const Pinned&) = delete;

  const Element* data() const { return elements_; }

  void CopyFrom(const Element* gpu, cuda::Stream stream) {
    device::CheckCuda(
        cudaMemcpyAsync(elements_, gpu, count_ * sizeof(Element), cudaMemcpyDeviceToHost, stream),
        "copy of norms from the GPU");
  }

 private:
  const size_t count_;
  Element* elements_ = nullptr;
};

std::vector<cuda::Tile> TilesOf(const ShardMemory& memory) {
  std::vector<cuda::Tile> tiles;
  const int64_t length = memory.granule * cuda::kTileChunks;
  for (const Piece& piece : memory.pieces) {
    for (int64_t begin = piece.range.begin; begin < piece.range.end;) {
      const int64_t end = std::min(piece.range.end, (begin / length + 1) * length);
      tiles.push_back({.begin = begin, .end = end, .parameter = piece.parameter});
      begin = end;
    }
  }
  return tiles;
}

// Pieces, and so tiles, are in parameter order.
std::vector<int> FirstTiles(const std::vector<cuda::Tile>& tiles, int num_parameters) {
  std::vector<int> first(static_cast<size_t>(num_parameters) + 1, 0);
  for (const cuda::Tile& tile : tiles) ++first[static_cast<size_t>(tile.parameter) + 1];
  for (size_t parameter = 1; parameter < first.size(); ++parameter) first[parameter] += first[parameter - 1];
  return first;
}

template <typename T>
class CudaShardWork final : public ShardWork {
 public:
  explicit CudaShardWork(ShardMemory memory)
      : memory_(std::move(memory)),
        runs_(RunsOf(memory_.pieces)),
        arrays_{.weight = static_cast<T*>(memory_.weight),
                .gradient = static_cast<T*>(memory_.gradient),
                .exp_avg = static_cast<T*>(memory_.exp_avg),
                .exp_avg_sq = static_cast<T*>(memory_.exp_avg_sq),
                .begin = memory_.begin,
                .granule = memory_.granule},
        host_norms_(static_cast<size_t>(memory_.num_parameters)) {
    const std::vector<cuda::Tile> tiles = TilesOf(memory_);
    num_tiles_ = static_cast<int>(tiles.size());
    tiles_ = OnGpu(tiles);
    first_tiles_ = OnGpu(FirstTiles(tiles, memory_.num_parameters));
    partials_ = OnGpu(static_cast<int64_t>(tiles.size() * sizeof(cuda::Partial)));
    norms_ = OnGpu(static_cast<int64_t>(memory_.num_parameters * sizeof(ParameterNorms)));
  }

  void Fold(const void* staging, bool add) override {
    for (const Range& run : runs_) {
      const int64_t at = run.begin - memory_.begin;
      device::CheckCuda(cuda::Fold(arrays_.gradient + at, static_cast<const T*>(staging) + at, run.size(),
                                   memory_.shard_elements, memory_.num_ranks, add, Current()),
                        "fold of gradients");
    }
  }

  void AddTerms(NormTerms* terms) override {
    if (num_tiles_ == 0) return;
    device::CheckCuda(cuda::AddTerms(arrays_, PointerTo<cuda::Tile>(tiles_), num_tiles_,
                                     PointerTo<cuda::Partial>(partials_), terms, Current()),
                      "terms of the gradient norm");
  }

  void OptimizerStep(const OptimizerInputs& inputs) override {
    if (num_tiles_ == 0) return;  // norms stay zero
    device::CheckCuda(cuda::OptimizerStep(
                          ScalarsOf<T>(inputs, 1), inputs.agreed, arrays_, PointerTo<cuda::Tile>(tiles_),
                          num_tiles_, PointerTo<int>(first_tiles_), memory_.num_parameters,
                          PointerTo<cuda::Partial>(partials_), PointerTo<ParameterNorms>(norms_), Current()),
                      "optimizer step");
    host_norms_.CopyFrom(PointerTo<ParameterNorms>(norms_), Current());
  }

  std::vector<ParameterNorms> norms() const override {
    return {host_norms_.data(), host_norms_.data() + memory_.num_parameters};
  }

 private:
  const ShardMemory memory_;
  const std::vector<Range> runs_;
  const cuda::ShardArrays<T> arrays_;
  int num_tiles_ = 0;
  at::Tensor tiles_;
  at::Tensor first_tiles_;
  at::Tensor partials_;
  at::Tensor norms_;
  Pinned<ParameterNorms> host_norms_;
};

constexpr int64_t kTermDoubles = sizeof(NormTerms) / sizeof(double);

}  // namespace

std::unique_ptr<ShardWork> MakeCudaShardWork(ShardMemory memory) {
  if (memory.fp64) return std::make_unique<CudaShardWork<double>>(std::move(memory));
  return std::make_unique<CudaShardWork<float>>(std::move(memory));
}

struct CudaNorm::State {
  explicit State(int ranks)
      : own(at::zeros({kTermDoubles}, Doubles())),
        all(at::zeros({ranks * kTermDoubles}, Doubles())),
        outcome(OnGpu(sizeof(NormOutcome))),
        host(1),
        ranks(ranks) {}

  static at::TensorOptions Doubles() {
    return at::TensorOptions().dtype(at::kDouble).device(at::kCUDA, c10::cuda::current_device());
  }

  at::Tensor own;
  at::Tensor all;
  at::Tensor outcome;
  Pinned<NormOutcome> host;
  int ranks;
};

CudaNorm::CudaNorm(int ranks) : state_(std::make_unique<State>(ranks)) {}

CudaNorm::~CudaNorm() = default;

void CudaNorm::Start(const NormRequests& asked) {
  device::CheckCuda(cuda::StartTerms(asked, terms(), Current()), "terms of the gradient norm");
}

NormTerms* CudaNorm::terms() { return reinterpret_cast<NormTerms*>(state_->own.mutable_data_ptr<double>()); }

void CudaNorm::Agree(comm::Communicator& comm, double num_microbatches, double max_norm) {
  comm.AllGather(state_->own, state_->all);
  auto* const outcome = PointerTo<NormOutcome>(state_->outcome);
  device::CheckCuda(cuda::FinishNorm(reinterpret_cast<const NormTerms*>(state_->all.const_data_ptr<double>()),
                                     state_->ranks, num_microbatches, max_norm, outcome, Current()),
                    "gradient norm");
  state_->host.CopyFrom(outcome, Current());
}

const NormOutcome* CudaNorm::outcome() const { return PointerTo<NormOutcome>(state_->outcome); }

NormOutcome CudaNorm::Read() const { return *state_->host.data(); }

}  // namespace tandem::fsdp
