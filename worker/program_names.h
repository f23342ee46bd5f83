// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "tandem/v1/job.pb.h"
#include "worker/instruction_names.h"

namespace tandem::worker {

// The instructions of all programs of the job, in the order of StagePrograms::All(), which the shared page's
// instruction counts through: to say where a rank was when it died. Empty if the programs cannot be derived
// from the spec; the cause then has the bare index.
InstructionNames NameProgram(const v1::JobSpec& resolved);

}  // namespace tandem::worker
