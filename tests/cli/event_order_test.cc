// SPDX-License-Identifier: Apache-2.0
// What may be shown when, of the two roads on which a watch hears of a job.
#include "cli/watch/event_order.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "tests/cli/sample_job.h"

namespace tandem::cli {
namespace {

class EventOrderTest : public testing::Test {
 protected:
  EventOrderTest() { state_.known = true; }

  void Put(const v1::WatchResponse& response, double at) { order_.Put(response, Moment(at)); }

  static v1::WatchResponse Checkpoint(int64_t step) {
    v1::WatchResponse response;
    response.mutable_event()->set_attempt(1);
    response.mutable_event()->set_from(v1::JOB_STATE_RUNNING);
    response.mutable_event()->mutable_checkpoint()->set_step(step);
    return response;
  }

  static v1::Job JobAt(v1::JobState state, int64_t step) {
    v1::Job job = SampleJob(state, ++revision_);
    job.set_last_step(step);
    return job;
  }

  // What may be shown at that time, applied as it is shown: "report 3", "checkpoint 3", "RUNNING".
  std::vector<std::string> Shown(double at) {
    std::vector<std::string> out;
    while (const std::optional<v1::WatchResponse> next = order_.Take(state_, Moment(at))) {
      Apply(*next, Moment(at), /*live=*/true, state_);
      out.push_back(next->has_report()  ? absl::StrCat("report ", next->report().step())
                    : next->has_event() ? absl::StrCat("checkpoint ", next->event().checkpoint().step())
                                        : v1::JobState_Name(state_.job.state()).substr(10));
    }
    return out;
  }

  using Words = std::vector<std::string>;
  static inline int64_t revision_ = 0;
  WatchState state_;
  EventOrder order_;
};

TEST_F(EventOrderTest, CheckpointWaitsForItsStepsReport) {
  state_.job = JobAt(v1::JOB_STATE_RUNNING, 0);
  Put(Checkpoint(2), 0);
  Put(Reported(SampleReport(1)), 0);
  EXPECT_EQ(Shown(0), (Words{"report 1"}));
  Put(Reported(SampleReport(2)), 1);
  EXPECT_EQ(Shown(1), (Words{"report 2", "checkpoint 2"}));
}

TEST_F(EventOrderTest, ALaterReportWillDo) {
  state_.job = JobAt(v1::JOB_STATE_RUNNING, 0);
  Put(Checkpoint(2), 0);
  Put(Reported(SampleReport(3)), 1);  // that of step 2 was dropped
  EXPECT_EQ(Shown(1), (Words{"report 3", "checkpoint 2"}));
}

TEST_F(EventOrderTest, WithoutReportsACheckpointComesAfterTenSeconds) {
  state_.job = JobAt(v1::JOB_STATE_RUNNING, 0);
  Put(Checkpoint(2), 0);
  EXPECT_EQ(Shown(9.9), Words{});
  EXPECT_EQ(Shown(10), (Words{"checkpoint 2"}));
}

TEST_F(EventOrderTest, EndWaitsForTheLastStep) {
  state_.job = JobAt(v1::JOB_STATE_RUNNING, 0);
  Put(Checkpoint(4), 0);
  Put(Changed(JobAt(v1::JOB_STATE_FAILED, 4)), 0);
  Put(Reported(SampleReport(2)), 0.2);
  EXPECT_EQ(Shown(0.4), (Words{"report 2"}));
  EXPECT_EQ(Shown(0.6), (Words{"checkpoint 4", "FAILED"})) << "300 ms of silence";
}

TEST_F(EventOrderTest, TheEndIsNotHeldUpForLong) {
  state_.job = JobAt(v1::JOB_STATE_RUNNING, 0);
  Put(Changed(JobAt(v1::JOB_STATE_STOPPING, 1000)), 0);
  for (int step = 1; step < 20; ++step) {
    Put(Reported(SampleReport(step)), 0.1 * step);
    EXPECT_EQ(Shown(0.1 * step), (Words{absl::StrCat("report ", step)}));
  }
  EXPECT_EQ(Shown(2), (Words{"STOPPING"}));
}

TEST_F(EventOrderTest, StepWaitsUntilItsAttemptRuns) {
  state_.job = JobAt(v1::JOB_STATE_STARTING, 0);
  Put(Reported(SampleReport(1)), 0);
  EXPECT_EQ(Shown(1), Words{});
  Put(Changed(JobAt(v1::JOB_STATE_RUNNING, 0)), 1);
  EXPECT_EQ(Shown(1), (Words{"RUNNING", "report 1"}));
  state_.job.set_state(v1::JOB_STATE_STARTING);
  Put(Reported(SampleReport(2)), 2);
  EXPECT_EQ(Shown(4), (Words{"report 2"})) << "but not forever";
}

TEST_F(EventOrderTest, OnceReleasedNothingWaits) {
  state_.job = JobAt(v1::JOB_STATE_STARTING, 0);
  Put(Reported(SampleReport(1)), 0);
  Put(Checkpoint(2), 0);
  EXPECT_EQ(Shown(0), Words{});
  order_.Release();
  EXPECT_EQ(Shown(0), (Words{"checkpoint 2", "report 1"}));
}

}  // namespace
}  // namespace tandem::cli
