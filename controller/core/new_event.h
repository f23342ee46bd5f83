// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <utility>

#include "absl/time/time.h"
#include "controller/core/decide.h"
#include "proto/time.h"

namespace tandem::controller {

// Makes an event that `actor` causes at `now` and that moves the job to the state `to`. reason: CamelCase.
inline v1::Event EventOf(const v1::Job& job, v1::JobState to, absl::Time now, std::string actor,
                         std::string reason, std::string message) {
  v1::Event event;
  *event.mutable_time() = proto::ToProto(now);
  event.set_job_id(job.id());
  event.set_attempt(job.attempt());
  event.set_from(job.state());
  event.set_to(to);
  event.set_actor(std::move(actor));
  event.set_reason(std::move(reason));
  event.set_message(std::move(message));
  event.set_schema(kEventSchema);
  return event;
}

// Sets the event's time to `happened` and its `decided` to `now`, if `happened` is earlier. happened: when a
// worker saw what the event describes; now: when the controller decides.
inline void SetHappened(absl::Time happened, absl::Time now, v1::Event& event) {
  if (happened < now) {
    *event.mutable_time() = proto::ToProto(happened);
    *event.mutable_decided() = proto::ToProto(now);
  }
}

}  // namespace tandem::controller
