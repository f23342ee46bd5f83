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

bool IsSharded(const UnitTypes& types) {
  using c10::ScalarType;
  const auto below_fp32 = [](ScalarType type) {
    return type == ScalarType::Float || type == ScalarType::BFloat16;
  };
  return types.main == ScalarType::Double
             ? types.compute == ScalarType::Double && types.transport == ScalarType::Double
             : types.main == ScalarType::Float && below_fp32(types.compute) && below_fp32(types.transport);
}

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
  if (!IsSharded(types)) {
    throw std::invalid_argument("unit " + name_ + ": main type " + c10::toString(types.main) +
                                ", compute type " + c10::toString(types.compute) + ", transport type " +
                                c10::toString(types.transport) +
                                "; units are Double in all three, or Float with Float or BFloat16 for "
                                "compute and transport");
  }
  kernels_ = kernels.MakeUnit({.fp64 = types.main == c10::ScalarType::Double,
                               .reduces_bf16 = types.transport == c10::ScalarType::BFloat16,
                               .publishes_bf16 = types.compute == c10::ScalarType::BFloat16,
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
int64_t UnitShard::published_bytes() const {
  return types_.compute == types_.main ? 0 : shard_elements_ * ElementBytes(types_.compute);
}
int64_t UnitShard::gathered_bytes() const {
  return num_ranks_ * shard_elements_ * ElementBytes(types_.compute);
}
int64_t UnitShard::contribution_bytes() const {
  return num_ranks_ * shard_elements_ * ElementBytes(types_.transport);
}

void UnitShard::CheckBytes(const char* what, device::Memory memory, int64_t bytes) const {
  if (memory.begin == nullptr || memory.bytes < bytes) {
    throw std::invalid_argument("unit " + name_ + ": " + what + " needs " + std::to_string(bytes) +
                                " bytes, there are " +
                                std::to_string(memory.begin == nullptr ? 0 : memory.bytes));
  }
}

// Exactly as many: a shard of another unit is a mistake, even a larger one.
at::Tensor UnitShard::Exactly(const char* what, const char* like, device::Memory memory, int64_t elements,
                              c10::ScalarType type) const {
  const int64_t bytes = elements * ElementBytes(type);
  if (memory.bytes != bytes) {
    throw std::invalid_argument("unit " + name_ + ": " + what + " has " + std::to_string(memory.bytes) +
                                " bytes, " + like + " " + std::to_string(bytes));
  }
  return device::FlatTensorIn(*device_, memory, type);
}

at::Tensor UnitShard::Shard(const char* what, device::Memory memory) const {
  return Exactly(what, "a shard", memory, shard_elements_, types_.main);
}

at::Tensor UnitShard::ComputeShard(const char* what, device::Memory memory) const {
  return Exactly(what, "a shard", memory, shard_elements_, types_.compute);
}

at::Tensor UnitShard::Gathered(const char* what, device::Memory memory, c10::ScalarType type) const {
  return Exactly(what, "a gathered buffer", memory, num_ranks_ * shard_elements_, type);
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

void UnitShard::Publish(const StateMemory& state) const {
  if (published_bytes() > 0) {
    ComputeShard("published", state.published).copy_(Shard("weights", state.weights));
  }
}

BoundCall UnitShard::BindUnshard(comm::Communicator& comm, device::Memory shard,
                                 device::Memory gathered) const {
  CheckGroup(comm);
  return [&comm, from = ComputeShard("shard", shard),
          to = Gathered("gathered buffer", gathered, types_.compute)]() mutable { comm.AllGather(from, to); };
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
  return [&comm, kernels = kernels_,
          contribution = Gathered("contribution", memory.contribution, types_.transport),
          staging = Gathered("staging", memory.staging, types_.transport), gradients = memory.gradients.begin,
          add, terms]() mutable {
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
  if (published_bytes() > 0) ComputeShard("published", memory.state.published);
  const UnitBufferBytes bytes = BufferBytesOf(layout_, num_ranks_, ElementBytes(types_.main));
  CheckBytes("outcome", memory.outcome, sizeof(NormOutcome));
  CheckBytes("inputs", memory.inputs, sizeof(RunInputs));
  CheckBytes("update norms", memory.update_norms, bytes.update_norms);
  CheckBytes("scratch of the optimizer", memory.scratch, bytes.optimizer_scratch);
  const OptimizerArrays arrays{.gradients = memory.gradients.begin,
                               .weights = memory.state.weights.begin,
                               .exp_avg = memory.state.exp_avg.begin,
                               .exp_avg_sq = memory.state.exp_avg_sq.begin,
                               .published = memory.state.published.begin,
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
