// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <memory>
#include <string>

namespace tandem::trainer {

class Backend;

// What a rank runs on, from the job's device (its name in a job spec) and the rank's slot on its machine.
// Throws UserError for a device that this program does not serve.
using MakeBackend = std::function<std::unique_ptr<Backend>(const std::string& device, int slot)>;

// What main does, for trainers of every kind: a process from its command line (link/trainer_args.h) and first
// frame to its exit code. The one place where an assignment becomes plain structs, and exceptions become a
// Cause. Returns the exit code (link/exit_code.h) after Finished; every other end leaves the process from
// inside, without joining threads: a Gloo operation that waits for a lost peer cannot be ended.
int TrainerMain(int argc, char** argv, const MakeBackend& make_backend);

}  // namespace tandem::trainer
