// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <exception>
#include <functional>
#include <stdexcept>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "proto/reasons.h"
#include "tandem/v1/state.pb.h"

namespace tandem::comm {
class Communicator;
}

namespace tandem::trainer {

// The errors of a rank. They are exceptions inside the trainer, and a Failure in the message to the daemon.

// The job cannot run as requested. what() says what to change. Exit code 64.
class UserError : public std::runtime_error {
 public:
  explicit UserError(const std::string& message, std::string reason = proto::ReasonCode("InvalidJob"))
      : std::runtime_error(message), reason(std::move(reason)) {}

  const std::string reason;  // CamelCase reason of the job's cause
};

// The programs of the service come from different builds. what() says which, and how they differ.
class BuildMismatch : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

// The job's numbers have become useless (NaN, infinite, or spikes), and the job's spec asks to stop in that
// case. what() says where. All ranks throw the same error.
class NumericError : public std::runtime_error {
 public:
  NumericError(const std::string& message, int64_t step,
               std::string reason = proto::ReasonCode("NonfiniteGradients"))
      : std::runtime_error(message), step(step), reason(std::move(reason)) {}

  const int64_t step;
  const std::string reason;  // CamelCase reason of the job's cause
};

// An error while an instruction ran. `cause` is what was thrown, and the other members say where.
class InstructionError : public std::runtime_error {
 public:
  InstructionError(std::exception_ptr cause, int64_t step, std::string instruction, std::string group);

  const std::exception_ptr cause;
  const int64_t step;             // 0: a validation before the first step
  const std::string instruction;  // as the program prints it
  const std::string group;        // group of its communicator, or empty
};

// An error as the service reports it.
struct Failure {
  // Class, CamelCase reason and a message of one line; if known, step, instruction and group.
  v1::Cause cause;
  int exit_code = 1;  // a link::ExitCode, or 1 if none fits
};

// Throws only std::bad_alloc.
Failure Describe(const std::exception_ptr& error);

// Throws if `status` is an error, which must come from files in checkpoint.directory. `what` says what failed
// ("rank 0 cannot write there"), and `status` names the file. Throws checkpoint::CheckpointError if the disk
// is full or fails (EIO, ESTALE), or too many files are open, and otherwise UserError. Both messages say what
// to do.
void ThrowIfUnwritable(const std::string& what, const absl::Status& status);

// Collective. Calls `decide` on rank 0 and returns its result on every rank. If it throws, every rank throws:
// a UserError with the same reason, any other exception as checkpoint::CheckpointError. Throws CommError.
std::string OnRankZero(comm::Communicator& comm, const std::function<std::string()>& decide);

}  // namespace tandem::trainer
