// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>

namespace tandem::trainer {

// What a user must know of one checkpoint, though the job goes on. The values are those of
// v1.CheckpointProblem.
enum class CheckpointProblem : uint8_t {
  kSaveFailed = 1,
  kPassedOver = 2,  // it does not verify, so the job started from an older one
  kOtherSeed = 3,   // the job goes on from it with another seed
  kOtherData = 4,
  kNotRemoved = 5,  // it was saved, and an older one that `keep` has no place for stays
};

struct CheckpointWarning {
  CheckpointProblem problem = CheckpointProblem::kSaveFailed;
  int64_t step = 0;     // of the checkpoint
  std::string path;     // empty where there is none
  std::string message;  // one line
};

}  // namespace tandem::trainer
