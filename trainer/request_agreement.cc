// SPDX-License-Identifier: Apache-2.0
#include "trainer/request_agreement.h"

#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>

#include <cstring>
#include <exception>
#include <vector>

#include "comm/communicator.h"
#include "trainer/failure.h"
#include "trainer/requests.h"

namespace tandem::trainer {

Agreed AgreedOf(const fsdp::NormOutcome& outcome) {
  return {.checkpoint = (outcome.requests & kRequestCheckpoint) != 0,
          .stop = (outcome.requests & kRequestStop) != 0,
          .profile = ProfileSteps::FromNumber(outcome.profile)};
}

Agreed AgreeOnRequests(comm::Communicator& comm, RequestBox& requests, int64_t step) {
  const fsdp::NormTerms mine{.requests = static_cast<double>(requests.Take()),
                             .profile = requests.WantedProfile().ToNumber()};
  const at::Tensor input = at::empty({static_cast<int64_t>(sizeof mine)}, at::kByte);
  std::memcpy(input.mutable_data_ptr(), &mine, sizeof mine);
  at::Tensor output = at::empty({comm.size() * input.numel()}, at::kByte);
  try {
    comm.AllGather(input, output);
  } catch (...) {
    throw InstructionError(std::current_exception(), step, "requests", comm.name());
  }
  std::vector<fsdp::NormTerms> all(comm.size());
  std::memcpy(all.data(), output.const_data_ptr(), output.nbytes());
  return AgreedOf(fsdp::AgreeOnNorm(all.data(), comm.size(), {}));
}

}  // namespace tandem::trainer
