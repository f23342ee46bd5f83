// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "absl/time/time.h"
#include "cli/watch/watch_state.h"
#include "google/protobuf/timestamp.pb.h"
#include "tandem/v1/jobs.pb.h"

namespace tandem::cli {

// The job and the reports that the tests of this folder show.

inline constexpr int64_t kStartSeconds = 1'714'564'800;  // 2024-05-01 12:00:00 UTC

inline google::protobuf::Timestamp At(int64_t seconds) {
  google::protobuf::Timestamp time;
  time.set_seconds(kStartSeconds + seconds);
  return time;
}

inline absl::Time Moment(double seconds) {
  return absl::FromUnixSeconds(kStartSeconds) + absl::Seconds(seconds);
}

inline v1::Job SampleJob(v1::JobState state, int64_t revision) {
  v1::Job job;
  job.set_id("3f2a91c07be4");
  job.set_name("headers");
  job.set_state(state);
  job.set_revision(revision);
  *job.mutable_created() = At(0);
  v1::JobSpec& spec = *job.mutable_resolved();
  spec.set_name("headers");
  spec.mutable_training()->set_steps(200);
  spec.mutable_parallelism()->set_ranks(2);
  spec.mutable_checkpoint()->set_directory("/data/runs/headers");
  spec.mutable_report()->set_parameter_norms(true);
  if (state != v1::JOB_STATE_QUEUED) {
    job.set_attempt(1);
    v1::Attempt& attempt = *job.add_attempts();
    attempt.set_number(1);
    attempt.set_device(v1::DEVICE_CPU);
    *attempt.mutable_started() = At(2);
    for (int rank = 0; rank < 2; ++rank) {
      v1::RankSlot& slot = *attempt.add_slots();
      slot.set_rank(rank);
      slot.set_worker(rank == 0 ? "local-1" : "local-2");
    }
  }
  return job;
}

// Half a second and 4096 tokens a step; the loss falls with the step.
inline v1::StepReport SampleReport(int64_t step) {
  v1::StepReport report;
  report.set_step(step);
  report.set_attempt(1);
  report.set_loss(2 + 3.5 / static_cast<double>(step));
  report.set_grad_norm(0.8423);
  report.set_learning_rate(7.61e-4);
  report.set_tokens(4096);
  report.set_seconds(0.5);
  return report;
}

inline v1::WatchResponse Snapshot(const v1::Job& job) {
  v1::WatchResponse response;
  *response.mutable_snapshot() = job;
  response.set_cursor("job-" + std::to_string(job.revision()));
  return response;
}

inline v1::WatchResponse Changed(const v1::Job& job) {
  v1::WatchResponse response;
  *response.mutable_changed() = job;
  response.set_cursor("job-" + std::to_string(job.revision()));
  return response;
}

inline v1::WatchResponse Reported(const v1::StepReport& report) {
  v1::WatchResponse response;
  *response.mutable_report() = report;
  response.set_cursor("step-" + std::to_string(report.step()));
  return response;
}

}  // namespace tandem::cli
