// SPDX-License-Identifier: Apache-2.0
#include "platform/failpoint.h"

#include <signal.h>
#include <unistd.h>

#include <map>
#include <string>

#include "absl/base/thread_annotations.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "absl/synchronization/mutex.h"

namespace tandem::platform {

namespace {

// The names that --failpoint gives, each with the number of hits until the kill.
struct Armed {
  absl::Mutex mu;
  std::map<std::string, int64_t, std::less<>> hits_left ABSL_GUARDED_BY(mu);
};

Armed& TheArmed() {
  static Armed* const armed = new Armed;
  return *armed;
}

}  // namespace

absl::Status SetFailpoints(std::string_view spec) {
  std::map<std::string, int64_t, std::less<>> parsed;
  for (const absl::string_view item : absl::StrSplit(absl::string_view(spec.data(), spec.size()), ',')) {
    const auto refuse = [&] {
      return absl::InvalidArgumentError(
          absl::StrCat("failpoint '", item, "' is not NAME=kill or NAME=kill@N with N from 1"));
    };
    const std::pair<absl::string_view, absl::string_view> parts =
        absl::StrSplit(item, absl::MaxSplits('=', 1));
    absl::string_view action = parts.second;
    int64_t count = 1;
    if (parts.first.empty() || !absl::ConsumePrefix(&action, "kill")) {
      return refuse();
    }
    if (absl::ConsumePrefix(&action, "@")) {
      if (!absl::SimpleAtoi(action, &count) || count < 1) {
        return refuse();
      }
    } else if (!action.empty()) {
      return refuse();
    }
    parsed[std::string(parts.first)] = count;
  }
  Armed& armed = TheArmed();
  const absl::MutexLock lock(&armed.mu);
  armed.hits_left = std::move(parsed);
  return absl::OkStatus();
}

void HitFailpoint(const char* name) {
  Armed& armed = TheArmed();
  const absl::MutexLock lock(&armed.mu);
  const auto it = armed.hits_left.find(std::string_view(name));
  if (it == armed.hits_left.end() || --it->second > 0) {
    return;
  }
  kill(getpid(), SIGKILL);
  while (true) {
    pause();  // the signal may take a moment, and no code after this may run
  }
}

}  // namespace tandem::platform
