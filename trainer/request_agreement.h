// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "fsdp/norm_outcome.h"
#include "trainer/run_sequence.h"

namespace tandem::comm {
class Communicator;
}

namespace tandem::trainer {

class RequestBox;

// The requests in the outcome of a norm.
Agreed AgreedOf(const fsdp::NormOutcome& outcome);

// Agrees, between runs that compute no norm, on the requests that the ranks of `comm` have received since the
// last time; each rank may have received only some. Collective, on the host; all ranks call it for the same
// step. Throws InstructionError with that step.
Agreed AgreeOnRequests(comm::Communicator& comm, RequestBox& requests, int64_t step);

}  // namespace tandem::trainer
