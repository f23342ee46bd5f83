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

// What the ranks have agreed on with a norm.
Agreed AgreedOf(const fsdp::NormOutcome& outcome);

// What all ranks of `comm` have been asked since the last time, of which each has some, as a norm would say
// it. Between runs that compute no norm. Collective, on the host; all ranks call it for the same step. Throws
// InstructionError with that step.
Agreed AgreeOnRequests(comm::Communicator& comm, RequestBox& requests, int64_t step);

}  // namespace tandem::trainer
