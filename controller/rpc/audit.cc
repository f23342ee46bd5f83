// SPDX-License-Identifier: Apache-2.0
#include "controller/rpc/audit.h"

#include "absl/strings/str_cat.h"
#include "platform/log.h"
#include "platform/shown_text.h"

namespace tandem::controller {

bool IsRefusal(absl::StatusCode code) {
  return code == absl::StatusCode::kPermissionDenied || code == absl::StatusCode::kUnauthenticated ||
         code == absl::StatusCode::kResourceExhausted;
}

void AuditLog::Write(const AuditLine& line) {
  const bool refused = IsRefusal(line.result.code());
  int64_t left_out = 0;
  if (refused) {
    if (rate_.Take(line.who) > absl::ZeroDuration()) {
      ++left_out_;
      return;
    }
    left_out = left_out_.exchange(0);
  }
  const absl::string_view why = refused ? line.result.message() : "";
  platform::Log(refused ? platform::LogLevel::kWarning : platform::LogLevel::kInfo, "audit",
                {{"who", line.who},
                 {"from", line.from},
                 {"method", line.what},
                 {"job", line.job},
                 {"result", absl::StatusCodeToString(line.result.code())},
                 {"why", platform::Shown(std::string(why), 500)},
                 {"left_out", absl::StrCat(left_out)}});
}

}  // namespace tandem::controller
