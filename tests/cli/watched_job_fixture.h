// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "tests/cli/command_fixture.h"

namespace tandem::cli {

// Commands that follow the job "headers", whose watches the test answers itself.
class WatchedJobTest : public CommandTest {
 protected:
  using Writer = grpc::ServerWriter<v1::WatchResponse>;

  static v1::Job Ended(v1::JobState state, int64_t steps) {
    v1::Job job = SampleJob(state, 9);
    job.mutable_resolved()->mutable_training()->set_steps(steps);
    *job.mutable_ended() = At(42);
    return job;
  }
  static v1::Job Running(int64_t steps) {
    v1::Job job = SampleJob(v1::JOB_STATE_RUNNING, 4);
    job.mutable_resolved()->mutable_training()->set_steps(steps);
    return job;
  }
  static void Send(Writer& writer, const v1::WatchResponse& response) { writer.Write(response); }
};

}  // namespace tandem::cli
