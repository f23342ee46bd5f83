// SPDX-License-Identifier: Apache-2.0
#include "controller/core/time_account.h"

#include <algorithm>

#include "controller/core/state.h"
#include "proto/time.h"

namespace tandem::controller {
namespace {

double Seconds(absl::Time from, absl::Time to) { return std::max(0.0, absl::ToDoubleSeconds(to - from)); }

}  // namespace

v1::TimeAccount AccountTime(const v1::Job& job, const StepTotals& totals, absl::Time now) {
  v1::TimeAccount out;
  const absl::Time created = proto::FromProto(job.created());
  const absl::Time end = job.has_ended() ? proto::FromProto(job.ended()) : now;
  out.set_total(Seconds(created, end));
  double running = 0;
  for (const v1::Attempt& attempt : job.attempts()) {
    const absl::Time over = attempt.has_ended() ? proto::FromProto(attempt.ended()) : end;
    const absl::Time ready = attempt.has_ready() ? proto::FromProto(attempt.ready()) : over;
    out.set_starting(out.starting() + Seconds(proto::FromProto(attempt.started()), ready));
    running += Seconds(ready, over);
  }
  out.set_waiting(std::max(0.0, out.total() - out.starting() - running));
  const double stepped = std::clamp(totals.seconds, 0.0, running);
  if (job.has_ended() && job.state() != v1::JOB_STATE_SUCCEEDED && totals.steps > 0) {
    const int64_t from = job.attempts().empty() ? 0 : job.attempts(job.attempts_size() - 1).resumed_step();
    const int64_t kept = std::max(from, job.checkpoints().last_step());
    const int64_t lost = std::clamp<int64_t>(job.last_step() - kept, 0, totals.steps);
    out.set_lost(stepped * static_cast<double>(lost) / static_cast<double>(totals.steps));
  }
  out.set_stepping(stepped - out.lost());
  const v1::CheckpointRecord& saves = job.checkpoints();
  out.set_checkpoints(
      std::min(saves.has_stall_seconds() ? saves.stall_seconds() : saves.seconds(), running - stepped));
  out.set_other(running - stepped - out.checkpoints());
  return out;
}

}  // namespace tandem::controller
