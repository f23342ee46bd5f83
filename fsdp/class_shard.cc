// SPDX-License-Identifier: Apache-2.0
#include "fsdp/class_shard.h"

#include <stdexcept>
#include <utility>

#include "comm/communicator.h"
#include "device/device.h"
#include "fsdp/shard_kernels.h"

namespace tandem::fsdp {
namespace {

using device::BytesOf;
using device::ElementKind;
using device::Memory;

// Supports one type for all, or bf16 with fp32. Nodes write contributions in their compute type or in the
// main type.
bool AreSupported(const ClassTypes& types) {
  using enum ElementKind;
  const bool one = types.compute == types.main && types.transport == types.main;
  return one ? types.main == kDouble || types.main == kFloat
             : types.main == kFloat && types.compute == kBf16 &&
                   (types.transport == kBf16 || types.transport == kFloat);
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
  if (!AreSupported(types)) {
    throw std::invalid_argument("unit " + name_ + ": main type " + ToText(types.main) + ", compute type " +
                                ToText(types.compute) + ", transport type " + ToText(types.transport) +
                                "; parameters are float64 in all three, or float32 in all three, or float32 "
                                "with bfloat16 for compute and bfloat16 or float32 for transport");
  }
  // On one rank most shards share their kernels.
  std::vector<std::pair<ShardGeometry, std::shared_ptr<UnitKernels>>> made;
  const auto on = [&](Range range, int num_ranks, ElementKind reduced) {
    ShardGeometry geometry{.fp64 = types.main == ElementKind::kDouble,
                           .reduces_bf16 = reduced == ElementKind::kBf16,
                           .begin = range.begin,
                           .shard_elements = range.size(),
                           .num_ranks = num_ranks,
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

ClassBytes ClassShard::bytes() const {
  const int64_t main = BytesOf(types_.main);
  const int64_t compute = BytesOf(types_.compute);
  const int64_t all = PaddedElements(layout_, mesh_);
  const bool publishes = !types_.frozen && (types_.publishes || types_.compute != types_.main);
  ClassBytes bytes{BufferBytesOf(layout_, mesh_, static_cast<int>(main))};
  bytes.weights = held_.size() * BytesOf(weights_type());
  bytes.moment = held_.size() * main;
  bytes.published = publishes ? held_.size() * compute : 0;
  bytes.piece = PieceElements(layout_, mesh_) * compute;
  bytes.shard = ShardElements(layout_, mesh_) * compute;
  bytes.gathered = all * compute;
  bytes.contribution = all * BytesOf(types_.transport);
  bytes.full_gradient = all * main;
  bytes.accumulator = accumulator_.size() * main;
  return bytes;
}

void ClassShard::CheckBytes(const char* what, Memory memory, int64_t bytes) const {
  if (memory.begin == nullptr || memory.bytes < bytes) {
    throw std::invalid_argument("unit " + name_ + ": " + what + " needs " + std::to_string(bytes) +
                                " bytes, there are " +
                                std::to_string(memory.begin == nullptr ? 0 : memory.bytes));
  }
}

// Requires exactly as many bytes, because a larger shard can only be that of another unit.
Memory ClassShard::Sized(const char* what, Memory memory, int64_t bytes) const {
  if (memory.bytes != bytes) {
    throw std::invalid_argument("unit " + name_ + ": " + what + " has " + std::to_string(memory.bytes) +
                                " bytes, and must have " + std::to_string(bytes));
  }
  return memory;
}

void ClassShard::CheckGroup(const comm::Communicator& comm, int size, int rank) const {
  if (comm.size() != size || comm.rank() != rank) {
    throw std::invalid_argument("unit " + name_ + ": placed as rank " + std::to_string(rank) + " of " +
                                std::to_string(size) + ", in group " + comm.name() + " this is rank " +
                                std::to_string(comm.rank()) + " of " + std::to_string(comm.size()));
  }
}

UnitNormTerms* ClassShard::NormTermsIn(Memory memory) const {
  if (memory.begin != nullptr) {
    CheckBytes("norm terms", memory, bytes().norm_terms);
  }
  return memory.as<UnitNormTerms>();
}

char* ClassShard::At(Memory accumulator, int64_t flat) const {
  return accumulator.begin + (flat - accumulator_.begin) * BytesOf(types_.main);
}

void ClassShard::Initialize(uint64_t seed, const std::vector<ParameterInit>& inits,
                            const StateMemory& state) const {
  if (inits.size() != layout_.parameters.size()) {
    throw std::invalid_argument("unit " + name_ + ": " + std::to_string(inits.size()) + " initialisers for " +
                                std::to_string(layout_.parameters.size()) + " parameters");
  }
  const Memory weights = Sized("weights", state.weights, bytes().weights);
  // Weights of a frozen unit may have a narrower type; the host then computes their initial values.
  const bool in_place = weights_type() == types_.main;
  std::vector<float> main(in_place ? 0 : static_cast<size_t>(held_.size()));  // frozen: in the compute type
  char* const values = in_place ? weights.begin : reinterpret_cast<char*>(main.data());
  if (in_place) {
    device_->Fill(weights.begin, 0, weights.bytes);
  }
  for (const Piece& piece : pieces_) {
    const auto parameter = static_cast<size_t>(piece.parameter);
    (in_place ? *kernels_ : CpuShardKernels())
        .Initialize(seed, layout_.parameters[parameter], inits[parameter], piece.range,
                    types_.main == ElementKind::kDouble,
                    values + (piece.range.begin - held_.begin) * BytesOf(types_.main));
  }
  if (!in_place) {
    std::vector<Bf16> rounded(main.size());
    CpuShardKernels().Round(main.data(), held_.size(), rounded.data());
    device_->CopyToDevice(weights.begin, rounded.data(), weights.bytes);
    device_->Synchronize();
  }
  if (state.exp_avg.begin == nullptr) {
    return;  // frozen
  }
  for (const auto& [what, moment] : {std::pair{"exp_avg", state.exp_avg}, {"exp_avg_sq", state.exp_avg_sq}}) {
    device_->Fill(Sized(what, moment, bytes().moment).begin, 0, moment.bytes);
  }
}

void ClassShard::Publish(const StateMemory& state) const {
  if (bytes().published > 0) {
    BindCopy(Sized("weights", state.weights, bytes().weights), weights_type(),
             Sized("published", state.published, bytes().published), types_.compute, *device_, *kernels_)();
  }
}

BoundCall ClassShard::BindUnshard(comm::Communicator& inner, Memory shard, Memory gathered) const {
  CheckGroup(inner, mesh_.inner, mesh_.inner_rank);
  return [&inner, from = Sized("shard", shard, bytes().shard),
          to = Sized("gathered buffer", gathered, bytes().gathered)] { inner.AllGather(from, to); };
}

BoundCall ClassShard::BindUnshardOuter(comm::Communicator& outer, Memory piece, Memory shard) const {
  CheckGroup(outer, mesh_.outer, mesh_.outer_rank);
  return [&outer, from = Sized("piece", piece, bytes().piece), to = Sized("shard", shard, bytes().shard)] {
    outer.AllGather(from, to);
  };
}

BoundCall ClassShard::BindAccumulate(Memory contribution, Memory full_gradient, bool add) const {
  return [kernels = accumulate_, from = Sized("contribution", contribution, bytes().contribution),
          to = Sized("full gradient", full_gradient, bytes().full_gradient),
          add] { kernels->Fold(from.begin, to.begin, add, nullptr); };
}

BoundCall ClassShard::BindReduceGradients(comm::Communicator* inner, const ReduceMemory& memory,
                                          bool add) const {
  if (inner != nullptr) {
    CheckGroup(*inner, mesh_.inner, mesh_.inner_rank);
  } else if (mesh_.inner > 1) {
    throw std::invalid_argument("unit " + name_ + ": a reduction over " + std::to_string(mesh_.inner) +
                                " ranks needs their communicator");
  }
  const Range shard = ShardRange(layout_, mesh_);
  const int64_t sent = memory.accumulated ? bytes().full_gradient : bytes().contribution;
  const Memory accumulator = Sized("accumulator", memory.gradients, bytes().accumulator);
  const Memory contribution = Sized("contribution", memory.contribution, sent);
  char* const gradients = At(memory.gradients, shard.begin);
  UnitNormTerms* const terms = NormTermsIn(memory.norm_terms);
  const std::shared_ptr<UnitKernels> kernels = memory.accumulated ? fold_full_ : fold_;
  if (inner == nullptr) {
    return [kernels, contribution, gradients, add, terms] {
      kernels->Fold(contribution.begin, gradients, add, terms);
    };
  }
  return [inner, kernels, contribution, staging = Sized("staging", memory.staging, sent), gradients, add,
          terms, everywhere = accumulator_ != shard,
          own = Memory{gradients, shard.size() * BytesOf(types_.main)}, accumulator] {
    inner->AllToAll(contribution, staging);
    kernels->Fold(staging.begin, gradients, add, terms);
    if (everywhere) {
      inner->AllGather(own, accumulator);
    }
  };
}

BoundCall ClassShard::BindReduceOuter(comm::Communicator& outer, const ReduceOuterMemory& memory) const {
  CheckGroup(outer, mesh_.outer, mesh_.outer_rank);
  const Range piece = PieceRange(layout_, mesh_);
  const Memory accumulator = Sized("accumulator", memory.gradients, bytes().accumulator);
  char* const gradients = At(memory.gradients, piece.begin);
  return [&outer, kernels = fold_outer_, staging = Sized("staging", memory.staging, bytes().accumulator),
          gradients, terms = NormTermsIn(memory.norm_terms), everywhere = !mesh_.outer_shards_optimizer,
          own = Memory{gradients, piece.size() * BytesOf(types_.main)}, accumulator] {
    outer.AllToAll(accumulator, staging);
    kernels->Fold(staging.begin, gradients, /*add=*/false, terms);
    if (everywhere) {
      outer.AllGather(own, accumulator);
    }
  };
}

BoundCall ClassShard::BindOptimizerStep(const OptimizerMemory& memory, const AdamWConfig& config) const {
  const ClassBytes size = bytes();
  Sized("accumulator", memory.gradients, size.accumulator);
  Sized("weights", memory.state.weights, size.moment);
  Sized("exp_avg", memory.state.exp_avg, size.moment);
  Sized("exp_avg_sq", memory.state.exp_avg_sq, size.moment);
  if (size.published > 0) {
    Sized("published", memory.state.published, size.published);
  }
  CheckBytes("outcome", memory.outcome, sizeof(NormOutcome));
  CheckBytes("inputs", memory.inputs, sizeof(RunInputs));
  if (memory.update_norms.begin != nullptr) {
    CheckBytes("update norms", memory.update_norms, size.update_norms);
  }
  CheckBytes("scratch of the optimizer", memory.scratch, size.optimizer_scratch);
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
  if (size.published == 0 || types_.compute != types_.main) {
    return step;
  }
  return
      [step = std::move(step), device = device_, from = memory.state.weights, to = memory.state.published] {
        step();
        device->Copy(to.begin, from.begin, from.bytes);
      };
}

BoundCall BindCopy(Memory from, ElementKind from_type, Memory to, ElementKind to_type, device::Device& device,
                   const ShardKernels& kernels) {
  const bool rounds = from_type == ElementKind::kFloat && to_type == ElementKind::kBf16;
  const int64_t elements = from.bytes / BytesOf(from_type);
  if (from.bytes != elements * BytesOf(from_type) || to.bytes != elements * BytesOf(to_type) ||
      !(rounds || from_type == to_type)) {
    throw std::invalid_argument(std::string("a copy of ") + std::to_string(from.bytes) + " bytes of " +
                                ToText(from_type) + " to " + std::to_string(to.bytes) + " of " +
                                ToText(to_type));
  }
  if (rounds) {
    return [&kernels, from, to, elements] { kernels.Round(from.as<float>(), elements, to.as<Bf16>()); };
  }
  return [&device, from, to] { device.Copy(to.begin, from.begin, from.bytes); };
}

}  // namespace tandem::fsdp
