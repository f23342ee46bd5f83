// SPDX-License-Identifier: Apache-2.0
#include "controller/metrics/job_needs.h"

#include <algorithm>
#include <limits>

namespace tandem::controller {
namespace {

constexpr size_t kMostPurposes = 16;  // of what the ranks of a job send; programs have half as many

}  // namespace

std::optional<JobNeeds> NeedsOf(const State& state, const v1::Job& job) {
  if (job.attempts().empty()) {
    return std::nullopt;
  }
  JobNeeds out{.total_bytes = std::numeric_limits<int64_t>::max()};
  for (const v1::RankSlot& slot : Current(job).slots()) {
    const v1::RankStatus* const status = StatusOf(state, slot, CurrentAttempt(job));
    if (status == nullptr || !status->has_ready()) {
      return std::nullopt;
    }
    const v1::Ready& ready = status->ready();
    out.arena_bytes = std::max(out.arena_bytes, ready.arena_bytes());
    out.used_bytes = std::max(out.used_bytes, ready.device_used_bytes());
    out.total_bytes = std::min(out.total_bytes, ready.device_total_bytes());
    for (const auto& [purpose, bytes] : ready.sent_bytes()) {
      if (bytes > 0 && (out.sent_bytes.contains(purpose) || out.sent_bytes.size() < kMostPurposes)) {
        out.sent_bytes[purpose] += bytes;
      }
    }
  }
  return out;
}

}  // namespace tandem::controller
