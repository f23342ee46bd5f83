// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "fsdp/norm_outcome.h"

namespace tandem::comm {
class Communicator;
}

namespace tandem::trainer {

class RequestBox;

// What all ranks of `comm` have been asked since the last time, of which each has some: requests and profile
// of the result, as GradientNorm gives them. Between runs that compute no norm. Collective, on the host; all
// ranks call it for the same step. Throws InstructionError with that step.
fsdp::NormOutcome AgreeOnRequests(comm::Communicator& comm, RequestBox& requests, int64_t step);

}  // namespace tandem::trainer
