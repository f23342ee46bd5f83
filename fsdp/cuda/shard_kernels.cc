// SPDX-License-Identifier: Apache-2.0
#include "fsdp/cuda/shard_kernels.h"

#include <cuda_runtime_api.h>

#include <utility>

#include "device/cuda/check.h"
#include "device/cuda/current.h"
#include "fsdp/buffer_bytes.h"
#include "fsdp/cuda/launch.h"

namespace tandem::fsdp {
namespace {

cuda::Stream CurrentStream() { return device::CurrentCudaStream(); }

// A table of the current GPU that never changes.
template <typename Element>
class Table {
 public:
  explicit Table(const std::vector<Element>& elements) {
    if (elements.empty()) {
      return;
    }
    const size_t bytes = elements.size() * sizeof(Element);
    device::CheckCuda(cudaMalloc(&data_, bytes), "memory of a table");
    // Copies synchronously, because other streams do not wait for the default stream.
    device::CheckCuda(cudaMemcpy(data_, elements.data(), bytes, cudaMemcpyHostToDevice), "copy of a table");
    device::CheckCuda(cudaStreamSynchronize(nullptr), "copy of a table");
  }
  ~Table() { cudaFree(data_); }
  Table(const Table&) = delete;
  Table& operator=(const Table&) = delete;

  const Element* data() const { return static_cast<const Element*>(data_); }

 private:
  void* data_ = nullptr;
};

// Tiles end at multiples of their length in the unit's flat buffer, so that their chunks are whole ones.
std::vector<cuda::TiledPiece> TiledPieces(const ShardGeometry& geometry, int& num_tiles) {
  const int64_t length = kGranule * kTileChunks;
  std::vector<cuda::TiledPiece> pieces;
  num_tiles = 0;
  for (const Piece& piece : geometry.pieces) {
    pieces.push_back({.begin = piece.range.begin,
                      .end = piece.range.end,
                      .first_tile = num_tiles,
                      .parameter = piece.parameter,
                      .decays = piece.decays});
    num_tiles += static_cast<int>((piece.range.end - 1) / length - piece.range.begin / length + 1);
  }
  return pieces;
}

// Pieces, and so tiles, are in the order of the parameters.
std::vector<int> FirstTiles(const std::vector<cuda::TiledPiece>& pieces, int num_tiles, int num_parameters) {
  std::vector<int> first(static_cast<size_t>(num_parameters) + 1, num_tiles);
  for (size_t i = pieces.size(); i-- > 0;) {
    const int from = i == 0 ? 0 : pieces[i - 1].parameter + 1;
    for (int parameter = from; parameter <= pieces[i].parameter; ++parameter) {
      first[static_cast<size_t>(parameter)] = pieces[i].first_tile;
    }
  }
  return first;
}

// T: the type of weights, moments and accumulator; C: the type of contributions.
template <typename T, typename C>
class CudaUnitKernels final : public UnitKernels {
 public:
  explicit CudaUnitKernels(ShardGeometry geometry)
      : geometry_(std::move(geometry)),
        tiled_(TiledPieces(geometry_, num_tiles_)),
        pieces_(tiled_),
        first_tiles_(FirstTiles(tiled_, num_tiles_, geometry_.num_parameters)) {}

  void Fold(const void* staging, void* gradients, bool add, UnitNormTerms* norm_terms) const override {
    device::CheckCuda(
        cuda::LaunchFold(Shard(), static_cast<T*>(gradients), static_cast<const C*>(staging),
                         geometry_.shard_elements, geometry_.num_ranks, add, norm_terms, CurrentStream()),
        "fold of gradients");
  }

  void OptimizerStep(const OptimizerArrays& arrays, const AdamWConfig& config) const override {
    const cuda::OptimizerPointers<T> pointers{.gradients = static_cast<const T*>(arrays.gradients),
                                              .weights = static_cast<T*>(arrays.weights),
                                              .exp_avg = static_cast<T*>(arrays.exp_avg),
                                              .exp_avg_sq = static_cast<T*>(arrays.exp_avg_sq),
                                              .published = static_cast<Bf16*>(arrays.published),
                                              .outcome = arrays.outcome,
                                              .inputs = arrays.inputs,
                                              .update_norms = arrays.update_norms,
                                              .tile_norms = static_cast<ParameterNorms*>(arrays.scratch)};
    device::CheckCuda(cuda::LaunchOptimizerStep(Shard(), config, pointers, first_tiles_.data(),
                                                geometry_.num_parameters, CurrentStream()),
                      "optimizer step");
  }

 private:
  cuda::TiledShard Shard() const {
    return {.pieces = pieces_.data(),
            .num_pieces = static_cast<int>(tiled_.size()),
            .num_tiles = num_tiles_,
            .begin = geometry_.begin};
  }

  const ShardGeometry geometry_;
  int num_tiles_ = 0;
  const std::vector<cuda::TiledPiece> tiled_;
  const Table<cuda::TiledPiece> pieces_;
  const Table<int> first_tiles_;
};

class CudaNormKernels final : public NormKernels {
 public:
  explicit CudaNormKernels(const std::vector<const UnitNormTerms*>& units)
      : num_units_(static_cast<int>(units.size())), units_(units) {}

  void Sum(const RunInputs* inputs, int64_t uncounted, NormTerms* own) const override {
    device::CheckCuda(
        cuda::LaunchSumTerms(units_.data(), num_units_, inputs, uncounted, own, CurrentStream()),
        "terms of the gradient norm");
  }

  void Agree(const NormTerms* terms, int ranks, const MeanConfig& config,
             NormOutcome* outcome) const override {
    device::CheckCuda(cuda::LaunchAgree(terms, ranks, config, outcome, CurrentStream()), "gradient norm");
  }

 private:
  const int num_units_;
  const Table<const UnitNormTerms*> units_;
};

class CudaKernels final : public ShardKernels {
 public:
  void Initialize(uint64_t seed, const Parameter& parameter, const ParameterInit& init, Range part, bool fp64,
                  void* values) const override {
    cuda::InitialValues initial{.seed = seed,
                                .stream = ParameterStream(parameter),
                                .distribution = init.distribution,
                                .deviation = init.deviation};
    const int64_t before = part.begin - parameter.range.begin;
    for (const CommonRun& run : WholeRuns(parameter, part)) {
      initial.first = run.a;
      initial.elements = run.elements;
      const int64_t to = run.b - before;
      device::CheckCuda(
          fp64 ? cuda::LaunchInitialize(initial, static_cast<double*>(values) + to, CurrentStream())
               : cuda::LaunchInitialize(initial, static_cast<float*>(values) + to, CurrentStream()),
          "initial values");
    }
  }
  void Round(const float* from, int64_t elements, Bf16* to) const override {
    device::CheckCuda(cuda::LaunchRound(from, elements, to, CurrentStream()), "rounding");
  }
  std::unique_ptr<UnitKernels> MakeUnit(ShardGeometry geometry) const override {
    if (geometry.fp64) {
      return std::make_unique<CudaUnitKernels<double, double>>(std::move(geometry));
    }
    if (geometry.reduces_bf16) {
      return std::make_unique<CudaUnitKernels<float, Bf16>>(std::move(geometry));
    }
    return std::make_unique<CudaUnitKernels<float, float>>(std::move(geometry));
  }
  std::unique_ptr<NormKernels> MakeNorm(std::vector<const UnitNormTerms*> units) const override {
    return std::make_unique<CudaNormKernels>(units);
  }
};

}  // namespace

const ShardKernels& CudaShardKernels() {
  static const CudaKernels kernels;
  return kernels;
}

}  // namespace tandem::fsdp
