// SPDX-License-Identifier: Apache-2.0
#include "trainer/state_update.h"

#include <ATen/core/Tensor.h>

#include <cstddef>
#include <stdexcept>
#include <string>

#include "comm/communicator.h"
#include "device/device.h"
#include "fsdp/norm_outcome.h"
#include "model/node.h"
#include "ops/sparse_operations.h"

namespace tandem::trainer {
namespace {

struct Router {
  at::Tensor tokens;  // [E], of this rank
  at::Tensor bias;
  int64_t offset = 0;  // of its tokens in a rank's
  bool frozen = false;
};

}  // namespace

fsdp::BoundCall BindBiasUpdates(comm::Communicator& comm, const BiasesMemory& memory, double rate,
                                const ops::SparseOperations& ops, const device::Device& device) {
  std::vector<Router> routers;
  int64_t counted = 0;
  for (const BiasMemory& router : memory.routers) {
    routers.push_back({.tokens = device::FlatTensorIn(device, router.tokens, at::kDouble),
                       .bias = device::FlatTensorIn(device, router.bias, model::ScalarTypeOf(memory.type)),
                       .offset = counted,
                       .frozen = router.frozen});
    counted += routers.back().tokens.numel();
  }
  at::Tensor all = device::FlatTensorIn(device, memory.exchanged, at::kDouble);
  if (all.numel() != counted * comm.size()) {
    throw std::invalid_argument("tokens of " + std::to_string(comm.size()) + " ranks do not fit");
  }
  const at::Tensor own = all.narrow(0, comm.rank() * counted, counted);
  const at::Tensor by_rank = all.view({comm.size(), counted});
  static_assert(sizeof(fsdp::NormOutcome::finite) == 1);
  const at::Tensor finite = device::FlatTensorIn(
      device, {memory.outcome.begin + offsetof(fsdp::NormOutcome, finite), 1}, at::kBool);
  return [&comm, &ops, routers, all, own, by_rank, finite, rate]() mutable {
    for (Router& router : routers) {
      own.narrow(0, router.offset, router.tokens.numel()).copy_(router.tokens);
      router.tokens.zero_();
    }
    comm.AllGather(own, all);
    for (Router& router : routers) {
      if (!router.frozen) {
        ops.UpdateRouterBias(by_rank.narrow(1, router.offset, router.tokens.numel()), finite, rate,
                             router.bias);
      }
    }
  };
}

}  // namespace tandem::trainer
