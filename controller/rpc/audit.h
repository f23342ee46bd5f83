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

// A call that was made, or refused.
struct AuditLine {
  std::string who;   // "user/alice", or "unknown"
  std::string from;  // address
  std::string what;  // "tandem.v1.Jobs/Cancel"
  std::string job = {};
  absl::Status result;
};

// The audit log: lines of the process's log. Refusals of one caller are limited to these rates, and a line
// says how many were left out before it, so that no caller fills the disk. Thread-safe.
class AuditLog {
 public:
  static constexpr double kRefusalsPerSecond = 1;
  static constexpr double kRefusalsAtOnce = 100;

  explicit AuditLog(const platform::Clock& clock) : rate_(kRefusalsPerSecond, kRefusalsAtOnce, clock) {}

  // A refusal is a result of PermissionDenied, Unauthenticated or ResourceExhausted.
  void Write(const AuditLine& line);

 private:
  RateLimit rate_;
  std::atomic<int64_t> left_out_ = 0;  // refusals of all callers, since the last line
};

// Writes a line for every call that changes something or reads what only its owner may (MethodRule::audited),
// and for every refused call. Of the request, a line has only the job's name; of a submitted text only if the
// job is taken. `callers` and `log` outlive the server. Register it last: it records the status that leaves.
std::unique_ptr<InterceptorFactory> AuditCalls(const Callers& callers, AuditLog& log);

}  // namespace tandem::controller
