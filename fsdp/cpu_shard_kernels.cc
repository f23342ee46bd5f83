// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <type_traits>
#include <utility>

#include "fsdp/buffer_bytes.h"
#include "fsdp/host_loops.h"
#include "fsdp/shard_kernels.h"

namespace tandem::fsdp {
namespace {

// Chunks that are folded at once: so much of the accumulator stays in the first-level cache from the fold to
// the squares.
constexpr int64_t kFoldChunks = 64;

// T: the type of weights, moments and accumulator; C: the type of contributions.
template <typename T, typename C>
class CpuUnitKernels final : public UnitKernels {
 public:
  explicit CpuUnitKernels(ShardGeometry geometry)
      : geometry_(std::move(geometry)), runs_(RunsOf(geometry_.pieces)) {}

  // Folds only the parameters, because the gaps of a contribution have undefined content.
  void Fold(const void* staging, void* gradients, bool add, UnitNormTerms* norm_terms) const override {
    if (norm_terms == nullptr) {
      for (const Range& run : runs_) {
        FoldRange(staging, gradients, run, add);
      }
      return;
    }
    DoubleDouble squares;
    int64_t nonfinite = 0;
    for (const Piece& piece : geometry_.pieces) {
      ForEachChunk(piece.range, kFoldChunks * kGranule, [&](Range block) {
        FoldRange(staging, gradients, block, add);
        ForEachChunk(block, kGranule, [&](Range chunk) {
          squares.Add(SumOfFiniteSquares(At(gradients, chunk.begin), chunk.size(), nonfinite));
        });
      });
    }
    *norm_terms = {.squares = squares, .nonfinite = static_cast<double>(nonfinite)};
  }

  void OptimizerStep(const OptimizerArrays& arrays, const AdamWConfig& config) const override {
    const bool with_norms = arrays.update_norms != nullptr;
    if (with_norms) {
      std::fill_n(arrays.update_norms, geometry_.num_parameters, ParameterNorms{});
    }
    const RunInputs& inputs = *arrays.inputs;
    const bool applied = arrays.outcome->applied;
    const AdamWScalars<T> decaying(config, inputs.learning_rate, inputs.correction1, inputs.correction2,
                                   *arrays.outcome);
    AdamWScalars<T> constant = decaying;
    constant.weight_decay = 0;
    const int64_t block_elements = kBlockChunks * kGranule;
    T* const mean = with_norms ? static_cast<T*>(arrays.scratch) : nullptr;
    T* const update = with_norms ? mean + block_elements : nullptr;
    for (const Piece& piece : geometry_.pieces) {
      const AdamWScalars<T>& scalars = piece.decays ? decaying : constant;
      ForEachChunk(piece.range, block_elements, [&](Range block) {
        const T* const sum = At(arrays.gradients, block.begin);
        T* const weight = At(arrays.weights, block.begin);
        if (applied) {
          AdamWStep(scalars, block.size(), sum, weight, At(arrays.exp_avg, block.begin),
                    At(arrays.exp_avg_sq, block.begin), mean, update);
        } else if (with_norms) {
          MeanGradient(scalars, block.size(), sum, mean);
        }
        PublishBlock(weight, block, arrays.published);
        if (!with_norms) {
          return;
        }
        ParameterNorms& norms = arrays.update_norms[piece.parameter];
        AddBlock(weight, block, norms.weight);
        AddBlock(mean, block, norms.gradient);
        if (applied) {
          AddBlock(update, block, norms.update);
        }
      });
    }
  }

 private:
  // Element `flat` of a shard.
  T* At(void* shard, int64_t flat) const { return static_cast<T*>(shard) + (flat - geometry_.begin); }
  const T* At(const void* shard, int64_t flat) const {
    return static_cast<const T*>(shard) + (flat - geometry_.begin);
  }

  // values: the elements of the block.
  void AddBlock(const T* values, Range block, Magnitude& magnitude) const {
    ForEachChunk(block, kGranule, [&](Range chunk) {
      magnitude.squares.Add(SumOfSquares(values + (chunk.begin - block.begin), chunk.size()));
    });
    magnitude.max_abs = std::max(magnitude.max_abs, MaxAbs(values, block.size()));
  }

  // Also called after a step that changes no weight, because published weights are written as a whole.
  void PublishBlock(const T* weight, Range block, void* published) const {
    if constexpr (std::is_same_v<T, float>) {
      if (published != nullptr) {
        Publish(weight, block.size(), static_cast<Bf16*>(published) + (block.begin - geometry_.begin));
      }
    }
  }

  void FoldRange(const void* staging, void* gradients, Range range, bool add) const {
    const C* const contributions = static_cast<const C*>(staging) + (range.begin - geometry_.begin);
    fsdp::Fold(At(gradients, range.begin), contributions, range.size(), geometry_.shard_elements,
               geometry_.num_ranks, add);
  }

  const ShardGeometry geometry_;
  const std::vector<Range> runs_;
};

class CpuNormKernels final : public NormKernels {
 public:
  explicit CpuNormKernels(std::vector<const UnitNormTerms*> units) : units_(std::move(units)) {}

  void Sum(const RunInputs* inputs, int64_t uncounted, NormTerms* own) const override {
    DoubleDouble squares;
    double nonfinite = 0;
    for (const UnitNormTerms* unit : units_) {
      squares.Add(unit->squares);
      nonfinite += unit->nonfinite;
    }
    *own = {.high = squares.high,
            .low = squares.low,
            .nonfinite = nonfinite,
            .requests = static_cast<double>(inputs->requests.bits),
            .profile = inputs->requests.profile,
            .uncounted = static_cast<double>(uncounted),
            .limit = inputs->requests.limit};
  }

  void Agree(const NormTerms* terms, int ranks, const MeanConfig& config,
             NormOutcome* outcome) const override {
    *outcome = AgreeOnNorm(terms, ranks, config);
  }

 private:
  const std::vector<const UnitNormTerms*> units_;
};

class CpuKernels final : public ShardKernels {
 public:
  void Initialize(uint64_t seed, const Parameter& parameter, const ParameterInit& init, Range part, bool fp64,
                  void* values) const override {
    if (fp64) {
      InitializeParameter(seed, parameter, init, part, static_cast<double*>(values));
    } else {
      InitializeParameter(seed, parameter, init, part, static_cast<float*>(values));
    }
  }
  void Round(const float* from, int64_t elements, Bf16* to) const override { Publish(from, elements, to); }
  std::unique_ptr<UnitKernels> MakeUnit(ShardGeometry geometry) const override {
    if (geometry.fp64) {
      return std::make_unique<CpuUnitKernels<double, double>>(std::move(geometry));
    }
    if (geometry.reduces_bf16) {
      return std::make_unique<CpuUnitKernels<float, Bf16>>(std::move(geometry));
    }
    return std::make_unique<CpuUnitKernels<float, float>>(std::move(geometry));
  }
  std::unique_ptr<NormKernels> MakeNorm(std::vector<const UnitNormTerms*> units) const override {
    return std::make_unique<CpuNormKernels>(std::move(units));
  }
};

}  // namespace

const ShardKernels& CpuShardKernels() {
  static const CpuKernels kernels;
  return kernels;
}

}  // namespace tandem::fsdp
