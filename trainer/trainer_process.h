// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <memory>
#include <string>

namespace tandem::trainer {

class Backend;

// Makes the backend of a rank from the job's device (its name in a job spec) and the rank's slot on its
// machine. Throws UserError for a device that this program does not support.
using MakeBackend = std::function<std::unique_ptr<Backend>(const std::string& device, int slot)>;

// The main function of trainers for every kind of device: a process from its command line
// (link/trainer_args.h) and first frame to its exit code. Only here does an assignment become plain structs,
// and an exception a Cause. Returns the exit code (link/exit_code.h) after Finished. In every other case it
// exits the process from inside without joining threads, because a Gloo operation that waits for a lost peer
// cannot be ended.
int TrainerMain(int argc, char** argv, const MakeBackend& make_backend);

}  // namespace tandem::trainer
