#include <utility>

#include "fsdp/fold.h"
#include "fsdp/norms.h"
#include "fsdp/optimizer.h"
#include "fsdp/shard_work.h"
#include "fsdp/sharded_unit.h"

namespace tandem::fsdp {
namespace {

template <typename T>
class CpuShardWork final : public ShardWork {
 public:
  explicit CpuShardWork(ShardMemory memory)
      : memory_(std::move(memory)), runs_(RunsOf(memory_.pieces)), norms_(memory_.num_parameters) {}

  // Only the parameters: what lies in the gaps of a slot is whatever was there before.
  void Fold(const void* staging, bool add) override {
    for (const Range& run : runs_) {
      fsdp::Fold(At(memory_.gradient, run.begin),
                 static_cast<const T*>(staging) + (run.begin - memory_.begin), run.size(),
                 memory_.shard_elements, memory_.num_ranks, add);
    }
  }

  void AddTerms(NormTerms* terms) override {
    DoubleDouble squares{terms->high, terms->low};
    int64_t nonfinite = 0;
    for (const Piece& piece : memory_.pieces) {
      ForEachChunk(piece.range, memory_.granule, [&](Range chunk) {
        squares.Add(SumOfFiniteSquares(At(memory_.gradient, chunk.begin), chunk.size(), nonfinite));
      });
    }
    terms->high = squares.high;
    terms->low = squares.low;
    terms->nonfinite += static_cast<double>(nonfinite);
  }

  void OptimizerStep(const OptimizerInputs& inputs) override {
    for (ParameterNorms& norms : norms_) norms = {};
    const bool finite = inputs.agreed == nullptr || inputs.agreed->finite;
    const AdamWScalars<T> scalars = ScalarsOf<T>(inputs, inputs.agreed == nullptr ? 1 : inputs.agreed->clip);
    // A block stays in the first-level cache from the update to the sums.
    const int64_t block_elements = 16 * memory_.granule;
    std::vector<T> mean(static_cast<size_t>(block_elements));
    std::vector<T> update(static_cast<size_t>(block_elements));
    for (const Piece& piece : memory_.pieces) {
      ParameterNorms& norms = norms_[static_cast<size_t>(piece.parameter)];
      ForEachChunk(piece.range, block_elements, [&](Range block) {
        const T* const sum = At(memory_.gradient, block.begin);
        T* const weight = At(memory_.weight, block.begin);
        if (finite) {
          AdamWStep(scalars, block.size(), sum, weight, At(memory_.exp_avg, block.begin),
                    At(memory_.exp_avg_sq, block.begin), mean.data(), update.data());
        } else {
          MeanGradient(scalars, block.size(), sum, mean.data());
        }
        ForEachChunk(block, memory_.granule, [&](Range chunk) {
          const int64_t at = chunk.begin - block.begin;
          norms.weight.Add(SumOfSquares(weight + at, chunk.size()));
          norms.gradient.Add(SumOfSquares(mean.data() + at, chunk.size()));
          if (finite) norms.update.Add(SumOfSquares(update.data() + at, chunk.size()));
        });
      });
    }
  }

  std::vector<ParameterNorms> norms() const override { return norms_; }

 private:
  // Element `flat` of a shard.
  T* At(void* shard, int64_t flat) const { return static_cast<T*>(shard) + (flat - memory_.begin); }

  const ShardMemory memory_;
  const std::vector<Range> runs_;
  std::vector<ParameterNorms> norms_;
};

}  // namespace

std::unique_ptr<ShardWork> MakeCpuShardWork(ShardMemory memory) {
  if (memory.fp64) return std::make_unique<CpuShardWork<double>>(std::move(memory));
  return std::make_unique<CpuShardWork<float>>(std::move(memory));
}

}  // namespace tandem::fsdp
