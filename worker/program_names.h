#pragma once

#include <vector>

#include "tandem/v1/job.pb.h"
#include "worker/state.h"

namespace tandem::worker {

// The instructions of the job's training program, to say where a rank was when it died. Empty where the
// program cannot be worked out from the spec; the cause then tells the bare index.
std::vector<InstructionName> NameProgram(const v1::JobSpec& resolved);

}  // namespace tandem::worker
