// SPDX-License-Identifier: Apache-2.0
#include "trainer/state_update.h"

#include <ATen/core/Tensor.h>

#include <cstring>
#include <stdexcept>

#include "checkpoint/tensor_type.h"
#include "comm/communicator.h"
#include "device/device.h"
#include "fsdp/norm_outcome.h"
#include "model/bound_pass.h"
#include "ops/router.h"

namespace tandem::trainer {
namespace {

struct Router {
  at::Tensor tokens;  // [E], of this rank
  at::Tensor bias;
  int64_t offset = 0;  // of its tokens in a rank's
};

// Of all ranks, into those of the first.
void SumOverRanks(int ranks, int64_t counted, double* exchanged) {
  for (int rank = 1; rank < ranks; ++rank) {
    for (int64_t i = 0; i < counted; ++i) {
      exchanged[i] += exchanged[rank * counted + i];
    }
  }
}

}  // namespace

fsdp::BoundCall BindBiasUpdates(comm::Communicator& comm, const BiasesMemory& memory, double rate,
                                const device::Device& device) {
  std::vector<Router> routers;
  int64_t counted = 0;
  for (const BiasMemory& router : memory.routers) {
    routers.push_back({.tokens = device::FlatTensorIn(device, router.tokens, at::kDouble),
                       .bias = device::FlatTensorIn(device, router.bias, model::ScalarTypeOf(memory.type)),
                       .offset = counted});
    counted += routers.back().tokens.numel();
  }
  at::Tensor all = device::FlatTensorIn(device, memory.exchanged, at::kDouble);
  if (all.numel() != counted * comm.size()) {
    throw std::invalid_argument("tokens of " + std::to_string(comm.size()) + " ranks do not fit");
  }
  const at::Tensor own = all.narrow(0, comm.rank() * counted, counted);
  return [&comm, routers, all, own, counted, rate,
          outcome = memory.outcome.as<const fsdp::NormOutcome>()]() mutable {
    for (Router& router : routers) {
      own.narrow(0, router.offset, router.tokens.numel()).copy_(router.tokens);
      router.tokens.zero_();
    }
    comm.AllGather(own, all);
    if (!outcome->finite) {
      return;
    }
    SumOverRanks(comm.size(), counted, all.mutable_data_ptr<double>());
    for (Router& router : routers) {
      ops::UpdateRouterBias(all.narrow(0, router.offset, router.tokens.numel()), rate, router.bias);
    }
  };
}

}  // namespace tandem::trainer
