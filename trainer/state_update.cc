// SPDX-License-Identifier: Apache-2.0
#include "trainer/state_update.h"

#include <cstddef>
#include <stdexcept>
#include <string>

#include "comm/communicator.h"
#include "fsdp/norm_outcome.h"
#include "model/node.h"
#include "ops/operations.h"

namespace tandem::trainer {
namespace {

struct Router {
  ops::Array tokens;  // [E], of this rank
  ops::Array bias;
  int64_t offset = 0;  // of its tokens in a rank's
  bool frozen = false;
};

}  // namespace

fsdp::BoundCall BindBiasUpdates(comm::Communicator& comm, const BiasesMemory& memory, double rate,
                                const ops::Operations& ops) {
  const auto array_in = [&](device::Memory in, ops::ElementKind type) {
    return ops::Array(in.begin, type, ops.kind(), in.bytes / ops::BytesOf(type), 1);
  };
  std::vector<Router> routers;
  int64_t counted = 0;
  for (const BiasMemory& router : memory.routers) {
    routers.push_back({.tokens = array_in(router.tokens, ops::ElementKind::kDouble),
                       .bias = array_in(router.bias, model::ElementKindOf(memory.type)),
                       .offset = counted,
                       .frozen = router.frozen});
    counted += routers.back().tokens.elements();
  }
  const ops::Array all = array_in(memory.exchanged, ops::ElementKind::kDouble);
  if (all.elements() != counted * comm.size()) {
    throw std::invalid_argument("tokens of " + std::to_string(comm.size()) + " ranks do not fit");
  }
  const ops::Array own = all.Rows(comm.rank() * counted, counted);
  const ops::Array by_rank = all.Reshaped(comm.size(), counted);
  static_assert(sizeof(fsdp::NormOutcome::applied) == 1);
  const ops::Array applied =
      array_in({memory.outcome.begin + offsetof(fsdp::NormOutcome, applied), 1}, ops::ElementKind::kByte);
  ops::Calls calls;
  for (const Router& router : routers) {
    calls.Add(ops.Copy(router.tokens, own.Rows(router.offset, router.tokens.elements())));
    calls.Add(ops.Fill(0, router.tokens));
  }
  calls.Add([&comm, from = own.memory(), to = all.memory()] { comm.AllGather(from, to); });
  for (const Router& router : routers) {
    if (!router.frozen) {
      calls.Add(ops.UpdateRouterBias(by_rank.Columns(router.offset, router.tokens.elements()), applied, rate,
                                     router.bias));
    }
  }
  return calls;
}

}  // namespace tandem::trainer
