// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <utility>
#include <vector>

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
  static v1::WatchResponse Succeeded(int64_t steps) { return Changed(Ended(v1::JOB_STATE_SUCCEEDED, steps)); }
  static v1::WatchResponse Step(int64_t step) { return Reported(SampleReport(step)); }

  // The next watch gets these and ends so.
  void Answer(std::vector<v1::WatchResponse> responses, grpc::Status status = grpc::Status::OK) {
    server_->watches.push_back([responses = std::move(responses), status = std::move(status)](
                                   const v1::WatchRequest&, Writer& writer) {
      for (const v1::WatchResponse& response : responses) {
        writer.Write(response);
      }
      return status;
    });
  }

  const grpc::Status reset_{grpc::StatusCode::INTERNAL, "stream: Connection reset by peer"};
  const grpc::Status away_{grpc::StatusCode::UNAVAILABLE, "stream: Connection reset by peer"};
};

}  // namespace tandem::cli
