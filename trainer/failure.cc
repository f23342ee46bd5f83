// SPDX-License-Identifier: Apache-2.0
#include "trainer/failure.h"

#include <c10/util/Exception.h>

#include <exception>
#include <new>
#include <nlohmann/json.hpp>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "checkpoint/checkpoint.h"
#include "checkpoint/work_together.h"
#include "comm/communicator.h"
#include "data/text_options.h"
#include "device/device.h"
#include "link/exit_code.h"
#include "model/expert_row_limit.h"
#include "platform/regular_file.h"
#include "proto/reasons.h"

namespace tandem::trainer {
namespace {

std::string OneLine(const std::string& text) {
  std::string line = absl::StrReplaceAll(text, {{"\n", " "}, {"\r", " "}});
  absl::StripTrailingAsciiWhitespace(&line);
  return line;
}

Failure Make(v1::FailureClass failure_class, std::string reason, const std::string& message,
             int exit_code = 1) {
  Failure failure{.exit_code = exit_code};
  failure.cause.set_class_(failure_class);
  failure.cause.set_reason(std::move(reason));
  failure.cause.set_message(OneLine(message));
  return failure;
}

Failure Make(v1::FailureClass failure_class, std::string reason, const std::string& message,
             link::ExitCode code) {
  return Make(failure_class, std::move(reason), message, static_cast<int>(code));
}

Failure User(std::string reason, const std::string& message) {
  return Make(v1::FAILURE_CLASS_USER, std::move(reason), message, link::ExitCode::kUserError);
}

Failure OutOf(const std::string& message) {
  return Make(v1::FAILURE_CLASS_OUT_OF_MEMORY, proto::ReasonCode("OutOfMemory"), message,
              link::ExitCode::kOutOfMemory);
}

Failure Own(std::string reason, const std::string& message) {
  return Make(v1::FAILURE_CLASS_INFRASTRUCTURE, std::move(reason), message);
}

}  // namespace

InstructionError::InstructionError(std::exception_ptr error, int64_t step, std::string instruction,
                                   std::string group)
    : std::runtime_error(Describe(error).cause.message()),
      cause(std::move(error)),
      step(step),
      instruction(std::move(instruction)),
      group(std::move(group)) {}

Failure Describe(const std::exception_ptr& error) {
  try {
    std::rethrow_exception(error);
  } catch (const InstructionError& e) {
    Failure failure = Describe(e.cause);
    failure.cause.set_step(e.step);
    failure.cause.set_instruction(e.instruction);
    failure.cause.set_group(e.group);
    return failure;
  } catch (const UserError& e) {
    return User(e.reason, e.what());
  } catch (const BuildMismatch& e) {
    return Own(proto::ReasonCode("BuildMismatch"), e.what());
  } catch (const NumericError& e) {
    Failure failure = Make(v1::FAILURE_CLASS_NUMERIC, e.reason, e.what(), link::ExitCode::kNumeric);
    failure.cause.set_step(e.step);
    return failure;
  } catch (const model::RowsBeyondRoom& e) {
    return User(proto::ReasonCode("InvalidJob"), e.what());
  } catch (const data::DataError& e) {
    return User(proto::ReasonCode("InvalidData"), e.what());
  } catch (const comm::AddressError& e) {
    return Own(proto::ReasonCode("DataAddressUnusable"), e.what());
  } catch (const comm::CommError& e) {
    return Make(v1::FAILURE_CLASS_PEER_LOST, proto::ReasonCode("PeerLost"), e.what(),
                link::ExitCode::kPeerLost);
  } catch (const checkpoint::DirectoryLost& e) {  // the user started another job there
    return User(proto::ReasonCode("CheckpointDirectoryLost"), e.what());
  } catch (const checkpoint::CheckpointError& e) {
    return Own(proto::ReasonCode("CheckpointFailed"), e.what());
  } catch (const device::OutOfMemory& e) {
    return OutOf(e.what());
  } catch (const std::bad_alloc&) {
    return OutOf("the machine has no memory left for this rank");
  } catch (const c10::OutOfMemoryError& e) {
    return OutOf(e.what_without_backtrace());
  } catch (const c10::Error& e) {
    // LibTorch's allocator of host memory has no exception of its own.
    const std::string message = e.what_without_backtrace();
    return absl::StrContains(message, "DefaultCPUAllocator: ")
               ? OutOf(message)
               : Own(proto::ReasonCode("InternalError"), message);
  } catch (const std::exception& e) {
    return Own(proto::ReasonCode("InternalError"), e.what());
  } catch (...) {
    return Own(proto::ReasonCode("InternalError"), "an exception that is not a std::exception");
  }
}

void ThrowIfUnwritable(const std::string& what, const absl::Status& status) {
  if (status.ok()) {
    return;
  }
  const std::string problem = absl::StrCat("checkpoint.directory: ", what, ": ", status.message());
  if (absl::IsResourceExhausted(status)) {
    throw checkpoint::CheckpointError(
        absl::StrCat(problem, "; ", platform::RemedyOf(status), ", or use another folder"));
  }
  if (absl::IsOutOfRange(status)) {
    throw checkpoint::CheckpointError(absl::StrCat(problem, "; ", platform::RemedyOf(status)));
  }
  // As EIO, ETIMEDOUT and ESTALE come (platform/regular_file.h).
  if (absl::IsUnknown(status) || absl::IsDeadlineExceeded(status) || absl::IsUnavailable(status)) {
    throw checkpoint::CheckpointError(
        absl::StrCat(problem, "; that file system fails: start again when it works, or use another folder"));
  }
  throw UserError(absl::StrCat(problem, "; correct that, or use another folder"));
}

std::string OnRankZero(comm::Communicator& comm, const std::function<std::string()>& decide) {
  std::string text;
  std::string error;   // empty: none
  std::string reason;  // of the user's error; empty: it is not the user's
  if (comm.rank() == 0) {
    try {
      text = decide();
    } catch (const UserError& user) {
      error = user.what();
      reason = user.reason;
    } catch (const std::exception& other) {  // the other ranks wait for this one, so they must learn of it
      error = other.what();
    }
  }
  const nlohmann::json mine = {{"text", text}, {"error", error}, {"reason", reason}};
  const nlohmann::json json = nlohmann::json::parse(
      checkpoint::TextOfRankZero(comm, mine.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace)));
  text = json.at("text").get<std::string>();
  error = json.at("error").get<std::string>();
  reason = json.at("reason").get<std::string>();
  if (error.empty()) {
    return text;
  }
  if (reason.empty()) {
    throw checkpoint::CheckpointError(error);
  }
  throw UserError(error, reason);
}

}  // namespace tandem::trainer
