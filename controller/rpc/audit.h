// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "controller/rpc/callers.h"
#include "controller/rpc/interceptors.h"
#include "controller/rpc/rate_limit.h"
#include "platform/clock.h"

namespace tandem::controller {

// What somebody did, or was refused.
struct AuditLine {
  std::string who;   // "user/alice", or "unknown"
  std::string from;  // address
  std::string what;  // "tandem.v1.Jobs/Cancel"
  std::string job = {};
  absl::Status result;
};

// The audit log: lines of our log. Of refusals of one caller no more than these are written, and a line says
// how many were left out before it, so that nobody fills the disk with them. Thread-safe.
class AuditLog {
 public:
  static constexpr double kRefusalsPerSecond = 1;
  static constexpr double kRefusalsAtOnce = 100;

  explicit AuditLog(const platform::Clock& clock) : rate_(kRefusalsPerSecond, kRefusalsAtOnce, clock) {}

  // A refusal is a result of PermissionDenied, Unauthenticated or ResourceExhausted.
  void Write(const AuditLine& line);

 private:
  RateLimit rate_;
  std::atomic<int64_t> left_out_ = 0;  // of everybody, since the last that was written
};

// Writes a line for every call that changes something or reads what is its owner's (MethodRule::audited), and
// for every call that was refused to who made it. Nothing of a request but the job that it names is in it.
// `callers` and `log` outlive the server. Register it last: it records the status that leaves.
std::unique_ptr<InterceptorFactory> AuditCalls(const Callers& callers, AuditLog& log);

}  // namespace tandem::controller
