// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <exception>
#include <stdexcept>
#include <string>
#include <utility>

#include "proto/reasons.h"
#include "tandem/v1/state.pb.h"

namespace tandem::trainer {

// How a rank's errors travel: exceptions inside, one Failure for the daemon.

// The job cannot run as it was asked for; what() says what to change. Exit code 64.
class UserError : public std::runtime_error {
 public:
  explicit UserError(const std::string& message, std::string reason = proto::reason::kInvalidJob)
      : std::runtime_error(message), reason(std::move(reason)) {}

  const std::string reason;  // CamelCase, of the job's cause
};

// The programs that make up the service are of different builds; what() says which, and how they differ.
class BuildMismatch : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

// The job's numbers are useless from here on, and the job asks to stop then; what() says where. All ranks
// throw the same.
class NumericError : public std::runtime_error {
 public:
  NumericError(const std::string& message, int64_t step,
               std::string reason = proto::reason::kNonfiniteGradients)
      : std::runtime_error(message), step(step), reason(std::move(reason)) {}

  const int64_t step;
  const std::string reason;  // CamelCase, of the job's cause
};

// An error while an instruction ran: `cause` is what was thrown, the rest says where.
class InstructionError : public std::runtime_error {
 public:
  InstructionError(std::exception_ptr cause, int64_t step, std::string instruction, std::string group);

  const std::exception_ptr cause;
  const int64_t step;             // 0: in a validation before the first step
  const std::string instruction;  // as the program prints it
  const std::string group;        // of its communicator, or empty
};

// One error in the words of the service.
struct Failure {
  v1::Cause cause;    // class, CamelCase reason, one line of message; step, instruction and group where known
  int exit_code = 1;  // of link::ExitCode where one fits
};

// Throws only std::bad_alloc.
Failure Describe(const std::exception_ptr& error);

// what() of `error`, without LibTorch's backtrace, in one line.
std::string Message(const std::exception_ptr& error);

}  // namespace tandem::trainer
