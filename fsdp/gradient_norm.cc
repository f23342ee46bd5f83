// SPDX-License-Identifier: Apache-2.0
#include "fsdp/gradient_norm.h"

#include <memory>
#include <stdexcept>
#include <string>
#include <utility>

#include "comm/communicator.h"
#include "fsdp/buffer_bytes.h"
#include "fsdp/shard_kernels.h"

namespace tandem::fsdp {
namespace {

void CheckBytes(const char* what, device::Memory memory, int64_t bytes) {
  if (memory.begin == nullptr || memory.bytes < bytes) {
    throw std::invalid_argument(std::string("gradient norm: ") + what + " needs " + std::to_string(bytes) +
                                " bytes, there are " +
                                std::to_string(memory.begin == nullptr ? 0 : memory.bytes));
  }
}

}  // namespace

BoundCall BindGradientNorm(comm::Communicator& comm, const GradientNormMemory& memory,
                           const GradientNormConfig& config, const ShardKernels& kernels) {
  std::vector<const UnitNormTerms*> units;
  for (const device::Memory& terms : memory.norm_terms) {
    CheckBytes("norm terms of a unit", terms, sizeof(UnitNormTerms));
    units.push_back(terms.as<const UnitNormTerms>());
  }
  CheckBytes("inputs", memory.inputs, sizeof(RunInputs));
  CheckBytes("outcome", memory.outcome, OutcomeBytes(comm.size()));
  auto* const terms = reinterpret_cast<NormTerms*>(memory.outcome.begin + kExchangeOffset);
  const auto memory_of = [](NormTerms* first, int count) {
    return device::Memory{.begin = reinterpret_cast<char*>(first),
                          .bytes = count * static_cast<int64_t>(sizeof(NormTerms))};
  };
  NormTerms* const own = terms + comm.rank();
  return [&comm, config, kernels = std::shared_ptr<NormKernels>(kernels.MakeNorm(std::move(units))),
          inputs = memory.inputs.as<const RunInputs>(), outcome = memory.outcome.as<NormOutcome>(), own,
          terms, from = memory_of(own, 1), to = memory_of(terms, comm.size())] {
    kernels->Sum(inputs, config.uncounted ? config.uncounted() : 0, own);
    comm.AllGather(from, to);
    kernels->Agree(terms, comm.size(), config.mean, outcome);
  };
}

}  // namespace tandem::fsdp
