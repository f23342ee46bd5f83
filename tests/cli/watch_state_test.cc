// SPDX-License-Identifier: Apache-2.0
#include "cli/watch/watch_state.h"

#include <gtest/gtest.h>

#include "tests/cli/sample_job.h"

namespace tandem::cli {
namespace {

TEST(WatchStateTest, RepeatsAfterAReconnectionChangeNothing) {
  WatchState state;
  Apply(Snapshot(SampleJob(v1::JOB_STATE_RUNNING, 4)), Moment(3), true, state);
  EXPECT_TRUE(Apply(Reported(SampleReport(1)), Moment(4), true, state).report);
  EXPECT_TRUE(Apply(Reported(SampleReport(2)), Moment(5), true, state).report);
  EXPECT_FALSE(Apply(Reported(SampleReport(2)), Moment(6), true, state).report);
  EXPECT_FALSE(Apply(Reported(SampleReport(1)), Moment(6), true, state).report);
  EXPECT_FALSE(Apply(Changed(SampleJob(v1::JOB_STATE_STARTING, 3)), Moment(6), true, state).job);
  EXPECT_EQ(state.job.state(), v1::JOB_STATE_RUNNING);
  EXPECT_EQ(state.reports, 2);
  EXPECT_EQ(state.tokens, 8192);
}

TEST(WatchStateTest, ANewAttemptMayRepeatSteps) {
  WatchState state;
  Apply(Reported(SampleReport(1)), Moment(4), true, state);
  Apply(Reported(SampleReport(2)), Moment(5), true, state);
  v1::StepReport again = SampleReport(2);
  again.set_attempt(2);
  EXPECT_TRUE(Apply(Reported(again), Moment(9), true, state).report);
  EXPECT_FALSE(Apply(Reported(SampleReport(3)), Moment(9), true, state).report);
}

TEST(WatchStateTest, StepZeroIsOnlyAValidation) {
  WatchState state;
  v1::StepReport before = SampleReport(1);
  before.set_step(0);
  (*before.mutable_scalars())["validation_loss"] = 5.5;
  const Applied applied = Apply(Reported(before), Moment(4), true, state);
  EXPECT_TRUE(applied.validation);
  EXPECT_FALSE(applied.report);
  EXPECT_FALSE(state.last.has_value());
  EXPECT_EQ(state.validation->loss, 5.5);
  EXPECT_TRUE(Apply(Reported(SampleReport(1)), Moment(5), true, state).report);
}

TEST(WatchStateTest, TheCursorFollowsEveryResponse) {
  WatchState state;
  Apply(Snapshot(SampleJob(v1::JOB_STATE_RUNNING, 4)), Moment(3), true, state);
  EXPECT_EQ(state.cursor, "job-4");
  v1::WatchResponse synced;
  synced.set_synced(true);
  Apply(synced, Moment(3), true, state);
  EXPECT_EQ(state.cursor, "job-4");
  Apply(Reported(SampleReport(9)), Moment(4), true, state);
  EXPECT_EQ(state.cursor, "step-9");
}

TEST(TimeLeftTest, CountsTheWaitsBetweenSteps) {
  WatchState state;
  Apply(Snapshot(SampleJob(v1::JOB_STATE_RUNNING, 4)), Moment(0), true, state);
  EXPECT_FALSE(TimeLeft(state, Moment(0)).has_value());
  // Half a second of work every second.
  for (int step = 1; step <= 100; ++step) {
    Apply(Reported(SampleReport(step)), Moment(step), true, state);
  }
  EXPECT_EQ(TimeLeft(state, Moment(100)), absl::Seconds(100));
  EXPECT_EQ(TimeLeft(state, Moment(100.5)), absl::Seconds(99.5));
  EXPECT_EQ(TimeLeft(state, Moment(500)), absl::Seconds(99));
}

TEST(TimeLeftTest, HistoryGivesThePaceOfTheSteps) {
  WatchState state;
  Apply(Snapshot(SampleJob(v1::JOB_STATE_RUNNING, 4)), Moment(0), true, state);
  for (int step = 1; step <= 100; ++step) {
    ApplyReport(SampleReport(step), Moment(1000), /*live=*/false, state);
  }
  EXPECT_EQ(TimeLeft(state, Moment(1000)), absl::Seconds(50));
  EXPECT_DOUBLE_EQ(TokensPerSecond(state), 8192);
}

TEST(LargestUpdatesTest, BrokenParametersComeFirst) {
  v1::Norms norms;
  for (const auto& [weight, update] : {std::pair(10.0, 0.1), {1.0, 0.5}, {0.0, 0.7}, {5.0, std::nan("")}}) {
    norms.add_weight(weight);
    norms.add_update(update);
  }
  EXPECT_EQ(LargestUpdates(norms, 3), (std::vector<int>{3, 1, 0}));
  EXPECT_EQ(LargestUpdates(norms, 10).size(), 4u);
}

TEST(LossHistoryTest, DrawsTheWholeCourseInAnyWidth) {
  LossHistory losses;
  EXPECT_EQ(losses.Sparkline(10, true), "");
  for (int i = 0; i < 100'000; ++i) {
    losses.Add(1000 - i / 100.0);
  }
  EXPECT_EQ(losses.Sparkline(8, true), "█▇▆▅▄▃▂▁");
  EXPECT_EQ(losses.Sparkline(8, false), "#*+=-,._");
}

TEST(LossHistoryTest, AFlatOrBrokenCourseIsDrawnToo) {
  LossHistory losses;
  losses.Add(2);
  losses.Add(2);
  losses.Add(NAN);
  EXPECT_EQ(losses.Sparkline(8, true), "▅▅!");
}

}  // namespace
}  // namespace tandem::cli
