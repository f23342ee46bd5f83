// SPDX-License-Identifier: Apache-2.0
#include "fsdp/class_shard.h"

#include <ATen/core/Tensor.h>
#include <ATen/ops/zeros.h>
#include <c10/core/ScalarType.h>

#include <stdexcept>
#include <utility>

#include "comm/communicator.h"
#include "device/device.h"
#include "fsdp/buffer_bytes.h"
#include "fsdp/shard_kernels.h"

namespace tandem::fsdp {
namespace {

int64_t ElementBytes(c10::ScalarType type) { return static_cast<int64_t>(c10::elementSize(type)); }

// One type for all, or bf16 over fp32. Nodes write contributions in what they compute in, or in the main
// type.
bool AreSupported(const ClassTypes& types) {
  using enum c10::ScalarType;
  const bool one = types.compute == types.main && types.transport == types.main;
  return one ? types.main == Double || types.main == Float
             : types.main == Float && types.compute == BFloat16 &&
                   (types.transport == BFloat16 || types.transport == Float);
}

}  // namespace

ClassShard::ClassShard(std::string name, Layout layout, const UnitMesh& mesh, ClassTypes types,
                       device::Device& device, const ShardKernels& kernels)
    : name_(std::move(name)),
      layout_(std::move(layout)),
      mesh_(mesh),
      held_(HeldRange(layout_, mesh_)),
      accumulator_(AccumulatorRange(layout_, mesh_)),
      pieces_(PiecesOf(layout_, held_)),
      types_(types),
      device_(&device),
      kernels_(&kernels) {
  try {
    CheckLayout(layout_);
  } catch (const std::invalid_argument& error) {
    throw std::invalid_argument("unit " + name_ + ": " + error.what());
  }
  if (!AreSupported(types)) {
    throw std::invalid_argument("unit " + name_ + ": main type " + c10::toString(types.main) +
                                ", compute type " + c10::toString(types.compute) + ", transport type " +
                                c10::toString(types.transport) +
                                "; parameters are Double in all three, or Float in all three, or Float with "
                                "BFloat16 for compute and BFloat16 or Float for transport");
  }
  // On one rank most are the same.
  std::vector<std::pair<ShardGeometry, std::shared_ptr<UnitKernels>>> made;
  const auto on = [&](Range range, int num_ranks, c10::ScalarType reduced) {
    ShardGeometry geometry{.fp64 = types.main == c10::ScalarType::Double,
                           .reduces_bf16 = reduced == c10::ScalarType::BFloat16,
                           .begin = range.begin,
                           .shard_elements = range.size(),
                           .num_ranks = num_ranks,
                           .granule = layout_.granule,
                           .num_parameters = static_cast<int>(layout_.parameters.size()),
                           .pieces = PiecesOf(layout_, range)};
    for (const auto& [other, unit] : made) {
      if (other == geometry) {
        return unit;
      }
    }
    made.emplace_back(geometry, kernels.MakeUnit(geometry));
    return made.back().second;
  };
  accumulate_ = on({.begin = 0, .end = PaddedElements(layout_, mesh_)}, 1, types.transport);
  fold_ = on(ShardRange(layout_, mesh_), mesh_.inner, types.transport);
  fold_full_ = on(ShardRange(layout_, mesh_), mesh_.inner, types.main);
  fold_outer_ = on(PieceRange(layout_, mesh_), mesh_.outer, types.main);
  optimizer_ = on(held_, 1, types.main);
}

ClassShard::~ClassShard() = default;
ClassShard::ClassShard(ClassShard&&) noexcept = default;

int64_t ClassShard::published_bytes() const {
  const bool publishes = !types_.frozen && (types_.publishes || types_.compute != types_.main);
  return publishes ? held_.size() * ElementBytes(types_.compute) : 0;
}

ClassBytes ClassShard::bytes() const {
  const int64_t main = ElementBytes(types_.main);
  const int64_t compute = ElementBytes(types_.compute);
  const int64_t all = PaddedElements(layout_, mesh_);
  const UnitBufferBytes small = BufferBytesOf(layout_, mesh_, static_cast<int>(main));
  return {.weights = held_.size() * ElementBytes(weights_type()),
          .moment = held_.size() * main,
          .published = published_bytes(),
          .piece = PieceElements(layout_, mesh_) * compute,
          .shard = ShardElements(layout_, mesh_) * compute,
          .gathered = all * compute,
          .contribution = all * ElementBytes(types_.transport),
          .full_gradient = all * main,
          .accumulator = accumulator_.size() * main,
          .norm_terms = small.norm_terms,
          .update_norms = small.update_norms,
          .optimizer_scratch = small.optimizer_scratch};
}

void ClassShard::CheckBytes(const char* what, device::Memory memory, int64_t bytes) const {
  if (memory.begin == nullptr || memory.bytes < bytes) {
    throw std::invalid_argument("unit " + name_ + ": " + what + " needs " + std::to_string(bytes) +
                                " bytes, there are " +
                                std::to_string(memory.begin == nullptr ? 0 : memory.bytes));
  }
}

// Exactly as many: a shard of another unit is a mistake, even a larger one.
at::Tensor ClassShard::Elements(const char* what, device::Memory memory, int64_t elements,
                                c10::ScalarType type) const {
  const int64_t bytes = elements * ElementBytes(type);
  if (memory.bytes != bytes) {
    throw std::invalid_argument("unit " + name_ + ": " + what + " has " + std::to_string(memory.bytes) +
                                " bytes, and must have " + std::to_string(bytes));
  }
  return device::FlatTensorIn(*device_, memory, type);
}

void ClassShard::CheckGroup(const comm::Communicator& comm, int size, int rank) const {
  if (comm.size() != size || comm.rank() != rank) {
    throw std::invalid_argument("unit " + name_ + ": placed as rank " + std::to_string(rank) + " of " +
                                std::to_string(size) + ", in group " + comm.name() + " this is rank " +
                                std::to_string(comm.rank()) + " of " + std::to_string(comm.size()));
  }
}

UnitNormTerms* ClassShard::NormTermsIn(device::Memory memory) const {
  if (memory.begin != nullptr) {
    CheckBytes("norm terms", memory, BufferBytesOf(layout_, mesh_, ElementBytes(types_.main)).norm_terms);
  }
  return memory.as<UnitNormTerms>();
}

char* ClassShard::At(device::Memory accumulator, int64_t flat) const {
  return accumulator.begin + (flat - accumulator_.begin) * ElementBytes(types_.main);
}

void ClassShard::Initialize(uint64_t seed, const std::vector<ParameterInit>& inits,
                            const StateMemory& state) const {
  if (inits.size() != layout_.parameters.size()) {
    throw std::invalid_argument("unit " + name_ + ": " + std::to_string(inits.size()) + " initialisers for " +
                                std::to_string(layout_.parameters.size()) + " parameters");
  }
  const at::Tensor weights = Elements("weights", state.weights, held_.size(), weights_type());
  // Those of a frozen unit may be of a narrower type: they are computed on the host.
  const bool in_place = weights_type() == types_.main;
  const at::Tensor main = in_place ? weights : at::zeros({held_.size()}, types_.main);
  if (in_place) {
    weights.zero_();
  }
  for (const Piece& piece : pieces_) {
    const auto parameter = static_cast<size_t>(piece.parameter);
    (in_place ? *kernels_ : CpuShardKernels())
        .Initialize(seed, layout_.parameters[parameter], inits[parameter], piece.range,
                    types_.main == c10::ScalarType::Double,
                    static_cast<char*>(main.mutable_data_ptr()) +
                        (piece.range.begin - held_.begin) * ElementBytes(types_.main));
  }
  if (!in_place) {
    weights.copy_(main);
  }
  if (state.exp_avg.begin == nullptr) {
    return;  // frozen
  }
  Elements("exp_avg", state.exp_avg, held_.size(), types_.main).zero_();
  Elements("exp_avg_sq", state.exp_avg_sq, held_.size(), types_.main).zero_();
}

void ClassShard::Publish(const StateMemory& state) const {
  if (published_bytes() > 0) {
    Elements("published", state.published, held_.size(), types_.compute)
        .copy_(Elements("weights", state.weights, held_.size(), weights_type()));
  }
}

BoundCall ClassShard::BindUnshard(comm::Communicator& inner, device::Memory shard,
                                  device::Memory gathered) const {
  CheckGroup(inner, mesh_.inner, mesh_.inner_rank);
  return [&inner, from = Elements("shard", shard, ShardElements(layout_, mesh_), types_.compute),
          to = Elements("gathered buffer", gathered, PaddedElements(layout_, mesh_),
                        types_.compute)]() mutable { inner.AllGather(from, to); };
}

BoundCall ClassShard::BindUnshardOuter(comm::Communicator& outer, device::Memory piece,
                                       device::Memory shard) const {
  CheckGroup(outer, mesh_.outer, mesh_.outer_rank);
  return [&outer, from = Elements("piece", piece, PieceElements(layout_, mesh_), types_.compute),
          to = Elements("shard", shard, ShardElements(layout_, mesh_), types_.compute)]() mutable {
    outer.AllGather(from, to);
  };
}

BoundCall ClassShard::BindAccumulate(device::Memory contribution, device::Memory full_gradient,
                                     bool add) const {
  const int64_t all = PaddedElements(layout_, mesh_);
  return [kernels = accumulate_, from = Elements("contribution", contribution, all, types_.transport),
          to = Elements("full gradient", full_gradient, all, types_.main),
          add] { kernels->Fold(from.const_data_ptr(), to.mutable_data_ptr(), add, nullptr); };
}

BoundCall ClassShard::BindReduceGradients(comm::Communicator* inner, const ReduceMemory& memory,
                                          bool add) const {
  if (inner != nullptr) {
    CheckGroup(*inner, mesh_.inner, mesh_.inner_rank);
  } else if (mesh_.inner > 1) {
    throw std::invalid_argument("unit " + name_ + ": a reduction over " + std::to_string(mesh_.inner) +
                                " ranks needs their communicator");
  }
  const int64_t all = PaddedElements(layout_, mesh_);
  const Range shard = ShardRange(layout_, mesh_);
  const c10::ScalarType type = memory.accumulated ? types_.main : types_.transport;
  at::Tensor accumulator = Elements("accumulator", memory.gradients, accumulator_.size(), types_.main);
  const at::Tensor contribution = Elements("contribution", memory.contribution, all, type);
  char* const gradients = At(memory.gradients, shard.begin);
  UnitNormTerms* const terms = NormTermsIn(memory.norm_terms);
  const std::shared_ptr<UnitKernels> kernels = memory.accumulated ? fold_full_ : fold_;
  if (inner == nullptr) {
    return [kernels, contribution, gradients, add, terms] {
      kernels->Fold(contribution.const_data_ptr(), gradients, add, terms);
    };
  }
  return
      [inner, kernels, contribution, staging = Elements("staging", memory.staging, all, type), gradients, add,
       terms, everywhere = accumulator_ != shard,
       own = accumulator.narrow(0, shard.begin - accumulator_.begin, shard.size()), accumulator]() mutable {
        inner->AllToAll(contribution, staging);
        kernels->Fold(staging.const_data_ptr(), gradients, add, terms);
        if (everywhere) {
          inner->AllGather(own, accumulator);
        }
      };
}

BoundCall ClassShard::BindReduceOuter(comm::Communicator& outer, const ReduceOuterMemory& memory) const {
  CheckGroup(outer, mesh_.outer, mesh_.outer_rank);
  const Range piece = PieceRange(layout_, mesh_);
  at::Tensor accumulator = Elements("accumulator", memory.gradients, accumulator_.size(), types_.main);
  return
      [&outer, kernels = fold_outer_,
       staging = Elements("staging", memory.staging, accumulator_.size(), types_.main),
       gradients = At(memory.gradients, piece.begin), terms = NormTermsIn(memory.norm_terms),
       everywhere = !mesh_.outer_shards_optimizer,
       own = accumulator.narrow(0, piece.begin - accumulator_.begin, piece.size()), accumulator]() mutable {
        outer.AllToAll(accumulator, staging);
        kernels->Fold(staging.const_data_ptr(), gradients, /*add=*/false, terms);
        if (everywhere) {
          outer.AllGather(own, accumulator);
        }
      };
}

BoundCall ClassShard::BindOptimizerStep(const OptimizerMemory& memory, const AdamWConfig& config) const {
  Elements("accumulator", memory.gradients, accumulator_.size(), types_.main);
  for (const auto& [what, state] : {std::pair{"weights", memory.state.weights},
                                    {"exp_avg", memory.state.exp_avg},
                                    {"exp_avg_sq", memory.state.exp_avg_sq}}) {
    Elements(what, state, held_.size(), types_.main);
  }
  if (published_bytes() > 0) {
    Elements("published", memory.state.published, held_.size(), types_.compute);
  }
  const UnitBufferBytes bytes = BufferBytesOf(layout_, mesh_, ElementBytes(types_.main));
  CheckBytes("outcome", memory.outcome, sizeof(NormOutcome));
  CheckBytes("inputs", memory.inputs, sizeof(RunInputs));
  if (memory.update_norms.begin != nullptr) {
    CheckBytes("update norms", memory.update_norms, bytes.update_norms);
  }
  CheckBytes("scratch of the optimizer", memory.scratch, bytes.optimizer_scratch);
  const OptimizerArrays arrays{
      .gradients = At(memory.gradients, held_.begin),
      .weights = memory.state.weights.begin,
      .exp_avg = memory.state.exp_avg.begin,
      .exp_avg_sq = memory.state.exp_avg_sq.begin,
      .published = types_.compute == types_.main ? nullptr : memory.state.published.begin,
      .outcome = memory.outcome.as<const NormOutcome>(),
      .inputs = memory.inputs.as<const RunInputs>(),
      .update_norms = memory.update_norms.as<ParameterNorms>(),
      .scratch = memory.scratch.begin};
  BoundCall step = [kernels = optimizer_, arrays, config, counts = CountsHeld(mesh_), device = device_,
                    norms = memory.update_norms] {
    kernels->OptimizerStep(arrays, config);
    if (!counts && norms.begin != nullptr) {
      device->Fill(norms.begin, 0, norms.bytes);
    }
  };
  if (published_bytes() == 0 || types_.compute != types_.main) {
    return step;
  }
  return [step = std::move(step), from = Elements("weights", memory.state.weights, held_.size(), types_.main),
          to = Elements("published", memory.state.published, held_.size(), types_.compute)]() mutable {
    step();
    to.copy_(from);
  };
}

BoundCall BindRound(device::Device& device, device::Memory collected, c10::ScalarType main,
                    device::Memory contribution, c10::ScalarType transport) {
  const at::Tensor from = device::FlatTensorIn(device, collected, main);
  const at::Tensor to = device::FlatTensorIn(device, contribution, transport);
  if (from.numel() != to.numel()) {
    throw std::invalid_argument("round: " + std::to_string(from.numel()) +
                                " elements were collected, the contribution's part has " +
                                std::to_string(to.numel()));
  }
  return [from, to] { at::Tensor(to).copy_(from); };
}

}  // namespace tandem::fsdp
