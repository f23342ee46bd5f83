// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "controller/rpc/call_limits.h"
#include "platform/clock.h"

namespace tandem::controller {

// A call that was made or refused.
struct AuditLine {
  std::string who;   // "user/alice", or "unknown"
  std::string from;  // address
  std::string what;  // "tandem.v1.Jobs/Cancel"
  std::string job = {};
  absl::Status result;
};

// PermissionDenied, Unauthenticated or ResourceExhausted.
bool IsRefusal(absl::StatusCode code);

// The audit log, whose lines are in the process's log. So that no caller fills the disk, the refusals of one
// caller are limited to these rates; the next line says how many were left out. Thread-safe.
class AuditLog {
 public:
  static constexpr double kRefusalsPerSecond = 1;
  static constexpr double kRefusalsAtOnce = 100;

  explicit AuditLog(const platform::Clock& clock) : rate_(kRefusalsPerSecond, kRefusalsAtOnce, clock) {}

  void Write(const AuditLine& line);

 private:
  RateLimit rate_;
  std::atomic<int64_t> left_out_ = 0;  // refusals of all callers, since the last line
};

}  // namespace tandem::controller
