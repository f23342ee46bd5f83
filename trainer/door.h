#pragma once

#include "link/trainer_args.h"

namespace tandem::trainer {

// A trainer process from its first frame to its exit code: the one place where protos become plain structs,
// and exceptions a Cause. Returns the exit code (link/exit_code.h) after Finished; every other end leaves the
// process from inside, without joining threads: a Gloo operation that waits for a lost peer cannot be ended.
int RunTrainer(const link::TrainerArgs& args);

}  // namespace tandem::trainer
