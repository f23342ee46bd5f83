#include "fsdp/unit_shard.h"

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

// Calls function(T{}) with the C++ type of the shard.
template <typename Function>
void WithType(c10::ScalarType type, Function function) {
  if (type == c10::ScalarType::Float) {
    function(float{});
  } else {
    function(double{});
  }
}

int64_t ElementBytes(c10::ScalarType type) { return static_cast<int64_t>(c10::elementSize(type)); }

}  // namespace

UnitShard::UnitShard(std::string name, Layout layout, int num_ranks, int rank, UnitTypes types,
                     device::Device& device, const ShardKernels& kernels)
    : name_(std::move(name)),
      layout_(std::move(layout)),
      num_ranks_(num_ranks),
      shard_elements_(ShardElements(layout_, num_ranks)),
      begin_(rank * shard_elements_),
      owned_(OwnedRange(layout_, num_ranks, rank)),
      pieces_(PiecesOf(layout_, owned_)),
      types_(types),
      device_(&device) {
  if (types.compute != types.main || types.transport != types.main ||
      (types.main != c10::ScalarType::Float && types.main != c10::ScalarType::Double)) {
    throw std::invalid_argument("unit " + name_ + ": main type " + c10::toString(types.main) +
                                ", compute type " + c10::toString(types.compute) + ", transport type " +
                                c10::toString(types.transport) +
                                "; this version shards units that are fp32, or fp64, in all three");
  }
  kernels_ = kernels.MakeUnit({.fp64 = types.main == c10::ScalarType::Double,
                               .begin = begin_,
                               .shard_elements = shard_elements_,
                               .num_ranks = num_ranks_,
                               .granule = layout_.granule,
                               .num_parameters = static_cast<int>(layout_.parameters.size()),
                               .pieces = pieces_});
}

UnitShard::~UnitShard() = default;
UnitShard::UnitShard(UnitShard&&) noexcept = default;

int64_t UnitShard::shard_bytes() const { return shard_elements_ * ElementBytes(types_.main); }
int64_t UnitShard::gathered_bytes() const {
  return num_ranks_ * shard_elements_ * ElementBytes(types_.compute);
}

void UnitShard::CheckBytes(const char* what, device::Memory memory, int64_t bytes) const {
  if (memory.begin == nullptr || memory.bytes < bytes) {
    throw std::invalid_argument("unit " + name_ + ": " + what + " needs " + std::to_string(bytes) +
                                " bytes, there are " +
                                std::to_string(memory.begin == nullptr ? 0 : memory.bytes));
  }
}

// Exactly as many: a shard of another unit is a mistake, even a larger one.
at::Tensor UnitShard::Shard(const char* what, device::Memory memory) const {
  if (memory.bytes != shard_bytes()) {
    throw std::invalid_argument("unit " + name_ + ": " + what + " has " + std::to_string(memory.bytes) +
                                " bytes, a shard " + std::to_string(shard_bytes()));
  }
  return device::FlatTensorIn(*device_, memory, types_.main);
}

at::Tensor UnitShard::Gathered(const char* what, device::Memory memory) const {
  if (memory.bytes != gathered_bytes()) {
    throw std::invalid_argument("unit " + name_ + ": " + what + " has " + std::to_string(memory.bytes) +
                                " bytes, a gathered buffer " + std::to_string(gathered_bytes()));
  }
  return device::FlatTensorIn(*device_, memory, types_.compute);
}

void UnitShard::CheckGroup(const comm::Communicator& comm) const {
  if (comm.size() != num_ranks_) {
    throw std::invalid_argument("unit " + name_ + ": sharded over " + std::to_string(num_ranks_) +
                                " ranks, group " + comm.name() + " has " + std::to_string(comm.size()));
  }
}

void UnitShard::Initialize(uint64_t seed, const std::vector<ParameterInit>& inits,
                           const StateMemory& state) const {
  if (inits.size() != layout_.parameters.size()) {
    throw std::invalid_argument("unit " + name_ + ": " + std::to_string(inits.size()) + " initialisers for " +
                                std::to_string(layout_.parameters.size()) + " parameters");
  }
  // On the host on every device, so that the weights are the same bits.
  const at::Tensor host = at::zeros({shard_elements_}, types_.main);
  WithType(types_.main, [&]<typename T>(T) {
    for (const Piece& piece : pieces_) {
      const auto parameter = static_cast<size_t>(piece.parameter);
      InitializeParameter(seed, layout_.parameters[parameter], inits[parameter], piece.range,
                          host.mutable_data_ptr<T>() + (piece.range.begin - begin_));
    }
  });
  Shard("weights", state.weights).copy_(host);
  Shard("exp_avg", state.exp_avg).zero_();
  Shard("exp_avg_sq", state.exp_avg_sq).zero_();
}

BoundCall UnitShard::BindUnshard(comm::Communicator& comm, device::Memory shard,
                                 device::Memory gathered) const {
  CheckGroup(comm);
  return [&comm, from = Shard("shard", shard), to = Gathered("gathered buffer", gathered)]() mutable {
    comm.AllGather(from, to);
  };
}

BoundCall UnitShard::BindReduceGradients(comm::Communicator& comm, const ReduceMemory& memory,
                                         bool add) const {
  CheckGroup(comm);
  Shard("accumulator", memory.gradients);
  auto* const terms = memory.norm_terms.as<UnitNormTerms>();
  if (terms != nullptr) {
    CheckBytes("norm terms", memory.norm_terms,
               BufferBytesOf(layout_, num_ranks_, ElementBytes(types_.main)).norm_terms);
  }
  return [&comm, kernels = kernels_, contribution = Gathered("contribution", memory.contribution),
          staging = Gathered("staging", memory.staging), gradients = memory.gradients.begin, add,
          terms]() mutable {
    comm.AllToAll(contribution, staging);
    kernels->Fold(staging.const_data_ptr(), gradients, add, terms);
  };
}

BoundCall UnitShard::BindOptimizerStep(const OptimizerMemory& memory, const AdamWConfig& config) const {
  for (const auto& [what, shard] : {std::pair{"accumulator", memory.gradients},
                                    {"weights", memory.state.weights},
                                    {"exp_avg", memory.state.exp_avg},
                                    {"exp_avg_sq", memory.state.exp_avg_sq}}) {
    Shard(what, shard);
  }
  const UnitBufferBytes bytes = BufferBytesOf(layout_, num_ranks_, ElementBytes(types_.main));
  CheckBytes("outcome", memory.outcome, sizeof(NormOutcome));
  CheckBytes("inputs", memory.inputs, sizeof(RunInputs));
  CheckBytes("update norms", memory.update_norms, bytes.update_norms);
  CheckBytes("scratch of the optimizer", memory.scratch, bytes.optimizer_scratch);
  const OptimizerArrays arrays{.gradients = memory.gradients.begin,
                               .weights = memory.state.weights.begin,
                               .exp_avg = memory.state.exp_avg.begin,
                               .exp_avg_sq = memory.state.exp_avg_sq.begin,
                               .outcome = memory.outcome.as<const NormOutcome>(),
                               .inputs = memory.inputs.as<const RunInputs>(),
                               .update_norms = memory.update_norms.as<ParameterNorms>(),
                               .scratch = memory.scratch.begin};
  return [kernels = kernels_, arrays, config] { kernels->OptimizerStep(arrays, config); };
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
