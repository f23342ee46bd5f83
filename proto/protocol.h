// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <compare>
#include <string>
#include <string_view>

#include "tandem/v1/workers.pb.h"

namespace tandem::proto {

// The protocol versions of controllers and workers of this build (Hello.protocol_min, protocol_max).
inline constexpr int kProtocol = 1;

// The allowed ids of workers, described for error messages.
inline constexpr char kWorkerIds[] = "1 to 253 letters, digits, '-', '_' and '.'";

inline bool IsWorkerId(std::string_view id) {
  return !id.empty() && id.size() <= 253 && std::all_of(id.begin(), id.end(), [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '-' ||
           c == '_' || c == '.';
  });
}

// Identifies one attempt of a job. It is the only fence between attempts: a message about an attempt that is
// not the current one changes nothing.
struct AttemptKey {
  std::string job;  // the job's id
  int attempt = 0;  // from 1
  auto operator<=>(const AttemptKey&) const = default;
};

inline AttemptKey KeyOf(const v1::AttemptId& id) { return {.job = id.job_id(), .attempt = id.attempt()}; }

inline v1::AttemptId IdOf(const AttemptKey& key) {
  v1::AttemptId id;
  id.set_job_id(key.job);
  id.set_attempt(key.attempt);
  return id;
}

}  // namespace tandem::proto
