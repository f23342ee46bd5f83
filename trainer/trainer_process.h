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

// The main function of the trainers for all kinds of device. Runs one rank from the command line
// (link/trainer_args.h) and the first frame to the exit code. Returns a code only for errors before training.
// Otherwise it exits the process (link/exit_code.h) without joining threads, because a Gloo operation that
// waits for a lost peer cannot be ended.
int TrainerMain(int argc, char** argv, const MakeBackend& make_backend);

}  // namespace tandem::trainer
