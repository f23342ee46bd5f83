// SPDX-License-Identifier: Apache-2.0
#include "trainer/failure.h"

#include <c10/util/Exception.h>

#include <new>
#include <utility>

#include "checkpoint/checkpoint.h"
#include "comm/communicator.h"
#include "data/corpus.h"
#include "device/device.h"

namespace tandem::trainer {
namespace {

std::string OneLine(std::string text) {
  for (char& c : text) {
    if (c == '\n' || c == '\r') {
      c = ' ';
    }
  }
  while (!text.empty() && text.back() == ' ') {
    text.pop_back();
  }
  return text;
}

Failure Make(FailureKind kind, link::ExitCode code, std::string reason, std::string message) {
  return {.kind = kind,
          .exit_code = code,
          .has_exit_code = true,
          .reason = std::move(reason),
          .message = OneLine(std::move(message))};
}

Failure Own(std::string reason, std::string message) {
  return {.kind = FailureKind::kInfrastructure,
          .reason = std::move(reason),
          .message = OneLine(std::move(message))};
}

}  // namespace

InstructionError::InstructionError(std::exception_ptr error, int64_t step, std::string instruction,
                                   std::string group)
    : std::runtime_error(Message(error)),
      cause(std::move(error)),
      step(step),
      instruction(std::move(instruction)),
      group(std::move(group)) {}

Failure Describe(const std::exception_ptr& error) {
  try {
    std::rethrow_exception(error);
  } catch (const InstructionError& e) {
    Failure failure = Describe(e.cause);
    failure.step = e.step;
    failure.instruction = e.instruction;
    failure.group = e.group;
    return failure;
  } catch (const UserError& e) {
    return Make(FailureKind::kUser, link::ExitCode::kUserError, e.reason, e.what());
  } catch (const BuildMismatch& e) {
    return Own("BuildMismatch", e.what());
  } catch (const NumericError& e) {
    Failure failure = Make(FailureKind::kNumeric, link::ExitCode::kNumeric, "NonfiniteGradients", e.what());
    failure.step = e.step;
    return failure;
  } catch (const data::DataError& e) {
    return Make(FailureKind::kUser, link::ExitCode::kUserError, "InvalidData", e.what());
  } catch (const comm::AddressError& e) {
    return Own("DataAddressUnusable", e.what());
  } catch (const comm::CommError& e) {
    return Make(FailureKind::kPeerLost, link::ExitCode::kPeerLost, "PeerLost", e.what());
  } catch (const checkpoint::DirectoryLost& e) {  // the user started another job there
    return Make(FailureKind::kUser, link::ExitCode::kUserError, "CheckpointDirectoryLost", e.what());
  } catch (const checkpoint::CheckpointError& e) {
    return Own("CheckpointFailed", e.what());
  } catch (const device::OutOfMemory& e) {
    return Make(FailureKind::kOutOfMemory, link::ExitCode::kOutOfMemory, "OutOfMemory", e.what());
  } catch (const std::bad_alloc&) {
    return Make(FailureKind::kOutOfMemory, link::ExitCode::kOutOfMemory, "OutOfMemory",
                "the machine has no memory left for this rank");
  } catch (const c10::OutOfMemoryError& e) {
    return Make(FailureKind::kOutOfMemory, link::ExitCode::kOutOfMemory, "OutOfMemory",
                e.what_without_backtrace());
  } catch (const c10::Error& e) {
    std::string message = e.what_without_backtrace();
    // LibTorch's allocator of host memory has no exception of its own.
    if (message.find("DefaultCPUAllocator: ") != std::string::npos) {
      return Make(FailureKind::kOutOfMemory, link::ExitCode::kOutOfMemory, "OutOfMemory", std::move(message));
    }
    return Own("InternalError", std::move(message));
  } catch (const std::exception& e) {
    return Own("InternalError", e.what());
  } catch (...) {
    return Own("InternalError", "an exception that is not a std::exception");
  }
}

std::string Message(const std::exception_ptr& error) {
  try {
    std::rethrow_exception(error);
  } catch (const c10::Error& e) {
    return OneLine(e.what_without_backtrace());
  } catch (const std::exception& e) {
    return OneLine(e.what());
  } catch (...) {
    return "an exception that is not a std::exception";
  }
}

}  // namespace tandem::trainer
