// SPDX-License-Identifier: Apache-2.0
#include "trainer/request_agreement.h"

#include <array>
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
  std::array mine = {fsdp::NormTerms{.requests = static_cast<double>(requests.Take()),
                                     .profile = requests.WantedProfile().ToNumber()}};
  std::vector<fsdp::NormTerms> all(comm.size());
  try {
    comm.AllGather(device::MemoryOf(mine), device::MemoryOf(all));
  } catch (...) {
    throw InstructionError(std::current_exception(), step, "requests", comm.name());
  }
  return AgreedOf(fsdp::AgreeOnNorm(all.data(), comm.size(), {}));
}

}  // namespace tandem::trainer
