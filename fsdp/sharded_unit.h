#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "fsdp/initialize.h"
#include "fsdp/layout.h"
#include "fsdp/norm_outcome.h"
#include "fsdp/optimizer.h"
#include "fsdp/run_inputs.h"
#include "fsdp/shard_work.h"

namespace at {
class Tensor;
}
namespace tandem::comm {
class Communicator;
}

namespace tandem::fsdp {

// What OptimizerStep needs beside the shard. AdamW with decoupled decay (Loshchilov and Hutter, 2019):
//   m = b1 m + (1 - b1) g;  v = b2 v + (1 - b2) g²;  w -= lr (m / (1 - b1^t) / (sqrt(v / (1 - b2^t)) + eps) +
//   decay w)
// with g = clip · sum / divisor; in the shard's type, each element alone, so that shards do not matter.
struct OptimizerInputs {
  int64_t step = 0;  // t, from 1
  double learning_rate = 0;
  double beta1 = 0;
  double beta2 = 0;
  double epsilon = 0;
  double weight_decay = 0;
  double divisor = 1;  // contributions of the step: microbatches over all ranks
  // In the device's memory, so that no host waits for it: `clip` is read from there, and where `finite` is
  // false weights and state stay as they are. Null: no clipping.
  const NormOutcome* agreed = nullptr;
};

// Of the old interface, until the trainer has left it.
template <typename T>
AdamWScalars<T> ScalarsOf(const OptimizerInputs& inputs, double clip) {
  return AdamWScalars<T>({.beta1 = inputs.beta1,
                          .beta2 = inputs.beta2,
                          .epsilon = inputs.epsilon,
                          .weight_decay = inputs.weight_decay,
                          .divisor = inputs.divisor},
                         inputs.learning_rate, BiasCorrection(inputs.beta1, inputs.step),
                         BiasCorrection(inputs.beta2, inputs.step), clip);
}

// Views of a shard's persistent tensors, each 1-D [ShardElements]; padding is kept zero.
struct UnitState;

// One unit on one rank under ZeRO-3: shards of weights, accumulated gradient and Adam's moments, and the
// collectives that gather and reduce them. Owns no memory and no communicator. Each method runs on the
// stream that the program says (gather, reduce, compute); the program orders them. Throws CommError.
class ShardedUnit {
 public:
  // weight, gradient, exp_avg, exp_avg_sq: [ShardElements(layout, num_ranks)], one dtype (fp32 or fp64).
  // Zeroes all four. make_work: for the kind of device that they are on.
  ShardedUnit(std::string name, Layout layout, int num_ranks, int rank, at::Tensor weight,
              at::Tensor gradient, at::Tensor exp_avg, at::Tensor exp_avg_sq,
              const MakeShardWork& make_work = MakeCpuShardWork);
  ~ShardedUnit();
  ShardedUnit(ShardedUnit&&) noexcept;

  const std::string& name() const;
  const Layout& layout() const;
  Range owned() const;  // in the flat buffer, padding excluded

  // Every element depends on seed, parameter name and its global index alone (Philox 4x32-10, Salmon et al.
  // 2011). inits: one per parameter of the layout. Computed on the host; blocks.
  void Initialize(uint64_t seed, const std::vector<ParameterInit>& inits);

  // slot: [GatheredElements], gets every rank's weights.
  void Unshard(comm::Communicator& comm, at::Tensor& slot);

  // slot: [GatheredElements], this rank's contributions of one microbatch (gaps are ignored); staging: the
  // same size. Folds the contributions of the ranks in rank order, one by one, into the gradient shard; add
  // == false: the first one of the step overwrites.
  void ReduceGradients(comm::Communicator& comm, const at::Tensor& slot, at::Tensor& staging, bool add);

  // Adds the terms of the accumulated gradient, before division and clipping; non-finite elements are counted
  // and not in the squares. `terms` is in the device's memory.
  void AddTerms(NormTerms* terms);

  // One pass over the shard. Leaves norms() of the step.
  void OptimizerStep(const OptimizerInputs& inputs);

  // Per parameter of the layout, of the last OptimizerStep, once its stream has passed it.
  std::vector<ParameterNorms> norms() const;

  // For checkpoints, owned part only: 1-D [owned().size()] views.
  at::Tensor weights() const;
  at::Tensor exp_avg() const;
  at::Tensor exp_avg_sq() const;

 private:
  std::unique_ptr<UnitState> state_;
};

// A tensor per parameter: views of a gathered slot, shaped as the parameter.
std::vector<at::Tensor> ParameterViews(const Layout& layout, const at::Tensor& slot);

}  // namespace tandem::fsdp
