#include "fsdp/sharded_unit.h"

#include <ATen/core/Tensor.h>
#include <ATen/ops/zeros_like.h>

#include <stdexcept>
#include <utility>

#include "comm/communicator.h"
#include "fsdp/initialize.h"
#include "fsdp/pieces.h"

namespace tandem::fsdp {

struct UnitState {
  std::string name;
  Layout layout;
  int num_ranks = 1;
  int64_t shard_elements = 0;
  int64_t begin = 0;  // flat coordinate of the shard's first element
  Range owned;
  at::Tensor weight;
  at::Tensor gradient;
  at::Tensor exp_avg;
  at::Tensor exp_avg_sq;
  std::vector<Piece> pieces;
  std::unique_ptr<ShardWork> work;
};

namespace {

// Calls function(T{}) with the C++ type of the shard.
template <typename Function>
void WithType(const at::Tensor& tensor, Function function) {
  if (tensor.scalar_type() == at::kFloat) {
    function(float{});
  } else {
    function(double{});
  }
}

void CheckShard(const UnitState& unit, const char* what, const at::Tensor& shard) {
  if (shard.dim() != 1 || shard.numel() != unit.shard_elements || !shard.is_contiguous() ||
      shard.scalar_type() != unit.weight.scalar_type() ||
      (shard.scalar_type() != at::kFloat && shard.scalar_type() != at::kDouble)) {
    throw std::invalid_argument("unit " + unit.name + ": " + what + " must be contiguous, fp32 or fp64, of " +
                                std::to_string(unit.shard_elements) +
                                " elements and of the type of the weights");
  }
}

void CheckSlot(const UnitState& unit, const comm::Communicator& comm, const char* what,
               const at::Tensor& slot) {
  if (comm.size() != unit.num_ranks) {
    throw std::invalid_argument("unit " + unit.name + ": sharded over " + std::to_string(unit.num_ranks) +
                                " ranks, group " + comm.name() + " has " + std::to_string(comm.size()));
  }
  if (slot.numel() != unit.shard_elements * unit.num_ranks || !slot.is_contiguous() ||
      slot.scalar_type() != unit.weight.scalar_type()) {
    throw std::invalid_argument("unit " + unit.name + ": " + what + " must be contiguous, of " +
                                std::to_string(unit.shard_elements * unit.num_ranks) +
                                " elements and of the type of the weights");
  }
}

at::Tensor Owned(const UnitState& unit, const at::Tensor& shard) {
  return shard.narrow(0, 0, unit.owned.size());
}

}  // namespace

ShardedUnit::ShardedUnit(std::string name, Layout layout, int num_ranks, int rank, at::Tensor weight,
                         at::Tensor gradient, at::Tensor exp_avg, at::Tensor exp_avg_sq,
                         const MakeShardWork& make_work)
    : state_(std::make_unique<UnitState>()) {
  UnitState& unit = *state_;
  unit.name = std::move(name);
  unit.layout = std::move(layout);
  unit.num_ranks = num_ranks;
  unit.shard_elements = ShardElements(unit.layout, num_ranks);
  unit.begin = rank * unit.shard_elements;
  unit.owned = OwnedRange(unit.layout, num_ranks, rank);
  unit.weight = std::move(weight);
  unit.gradient = std::move(gradient);
  unit.exp_avg = std::move(exp_avg);
  unit.exp_avg_sq = std::move(exp_avg_sq);
  CheckShard(unit, "weight", unit.weight);
  CheckShard(unit, "gradient", unit.gradient);
  CheckShard(unit, "exp_avg", unit.exp_avg);
  CheckShard(unit, "exp_avg_sq", unit.exp_avg_sq);
  for (at::Tensor* shard : {&unit.weight, &unit.gradient, &unit.exp_avg, &unit.exp_avg_sq}) shard->zero_();
  unit.pieces = PiecesOf(unit.layout, unit.owned);
  unit.work = make_work({.fp64 = unit.weight.scalar_type() == at::kDouble,
                         .weight = unit.weight.mutable_data_ptr(),
                         .gradient = unit.gradient.mutable_data_ptr(),
                         .exp_avg = unit.exp_avg.mutable_data_ptr(),
                         .exp_avg_sq = unit.exp_avg_sq.mutable_data_ptr(),
                         .begin = unit.begin,
                         .shard_elements = unit.shard_elements,
                         .num_ranks = unit.num_ranks,
                         .granule = unit.layout.granule,
                         .num_parameters = static_cast<int>(unit.layout.parameters.size()),
                         .pieces = unit.pieces});
}

ShardedUnit::~ShardedUnit() = default;
ShardedUnit::ShardedUnit(ShardedUnit&&) noexcept = default;

const std::string& ShardedUnit::name() const { return state_->name; }
const Layout& ShardedUnit::layout() const { return state_->layout; }
Range ShardedUnit::owned() const { return state_->owned; }

void ShardedUnit::Initialize(uint64_t seed, const std::vector<ParameterInit>& inits) {
  const UnitState& unit = *state_;
  if (inits.size() != unit.layout.parameters.size()) {
    throw std::invalid_argument("unit " + unit.name + ": " + std::to_string(inits.size()) +
                                " initialisers for " + std::to_string(unit.layout.parameters.size()) +
                                " parameters");
  }
  // On the host on every device, so that the weights are the same bits.
  at::Tensor host = at::zeros_like(unit.weight, unit.weight.options().device(at::kCPU));
  WithType(unit.weight, [&]<typename T>(T) {
    for (const Piece& piece : unit.pieces) {
      const auto parameter = static_cast<size_t>(piece.parameter);
      InitializeParameter(seed, unit.layout.parameters[parameter], inits[parameter], piece.range,
                          host.mutable_data_ptr<T>() + (piece.range.begin - unit.begin));
    }
  });
  at::Tensor(unit.weight).copy_(host);
}

void ShardedUnit::Unshard(comm::Communicator& comm, at::Tensor& slot) {
  CheckSlot(*state_, comm, "slot", slot);
  comm.AllGather(state_->weight, slot);
}

void ShardedUnit::ReduceGradients(comm::Communicator& comm, const at::Tensor& slot, at::Tensor& staging,
                                  bool add) {
  const UnitState& unit = *state_;
  CheckSlot(unit, comm, "slot", slot);
  CheckSlot(unit, comm, "staging", staging);
  comm.AllToAll(slot, staging);
  unit.work->Fold(staging.const_data_ptr(), add);
}

void ShardedUnit::AddTerms(NormTerms* terms) { state_->work->AddTerms(terms); }

void ShardedUnit::OptimizerStep(const OptimizerInputs& inputs) { state_->work->OptimizerStep(inputs); }

std::vector<ParameterNorms> ShardedUnit::norms() const { return state_->work->norms(); }

at::Tensor ShardedUnit::weights() const { return Owned(*state_, state_->weight); }
at::Tensor ShardedUnit::exp_avg() const { return Owned(*state_, state_->exp_avg); }
at::Tensor ShardedUnit::exp_avg_sq() const { return Owned(*state_, state_->exp_avg_sq); }

}  // namespace tandem::fsdp
