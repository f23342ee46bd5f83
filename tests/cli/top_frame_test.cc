// SPDX-License-Identifier: Apache-2.0
#include "cli/top/top_frame.h"

#include <gmock/gmock.h>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "cli/terminal/display_text.h"
#include "tests/cli/sample_job.h"

namespace tandem::cli {
namespace {

using ::testing::HasSubstr;
using ::testing::StartsWith;

TopState Cluster(int running, int queued) {
  TopState state;
  for (int i = queued - 1; i >= 0; --i) {  // newest first
    v1::Job& job = state.jobs.emplace_back(SampleJob(v1::JOB_STATE_QUEUED, 1));
    job.set_id(absl::StrCat("q", i));
    job.set_name(absl::StrCat("queued-", i));
    job.set_reason("BehindOthers");
  }
  for (int i = running - 1; i >= 0; --i) {
    v1::Job& job = state.jobs.emplace_back(SampleJob(v1::JOB_STATE_RUNNING, 4));
    job.set_id(absl::StrCat("r", i));
    job.set_name(absl::StrCat("running-", i));
    job.set_last_step(10);
    state.reports[job.id()] = SampleReport(10);
  }
  return state;
}

TEST(TopFrameTest, RunningJobsComeBeforeWaitingOnes) {
  const std::string text = RenderTop(Cluster(2, 2), {0, 0}, true, Moment(60));
  EXPECT_THAT(
      text,
      StartsWith(
          "workers 0 of 0 connected  slots 0 of 0 in use  jobs 2 QUEUED, 2 RUNNING  16,384 tokens/s\n"));
  EXPECT_LT(text.find("running-0"), text.find("running-1"));
  EXPECT_LT(text.find("running-1"), text.find("queued-0"));
  EXPECT_LT(text.find("queued-0"), text.find("queued-1"));
  EXPECT_THAT(text, HasSubstr("BehindOthers"));
}

TEST(TopFrameTest, AThousandJobsFitAnyTerminal) {
  for (const TerminalSize& size :
       {TerminalSize{80, 24}, TerminalSize{30, 10}, TerminalSize{200, 5}, TerminalSize{8, 3}}) {
    const std::string text = RenderTop(Cluster(500, 500), size, true, Moment(60));
    const std::vector<std::string> lines = absl::StrSplit(text, '\n', absl::SkipEmpty());
    EXPECT_LE(static_cast<int>(lines.size()), size.rows - 1);
    for (const std::string& line : lines) {
      EXPECT_LE(DisplayWidth(line), std::max(size.columns, 60)) << line;
      if (absl::StartsWith(line, "and ") || absl::StartsWith(line, "workers ")) {
        EXPECT_LE(DisplayWidth(line), size.columns) << line;
      }
    }
  }
}

TEST(TopFrameTest, AnEmptyClusterSaysSo) {
  EXPECT_EQ(RenderTop({}, {0, 0}, true, Moment(0)),
            "workers 0 of 0 connected  slots 0 of 0 in use  jobs none\n");
}

TEST(TopFrameTest, AStalledJobSaysWhereItIs) {
  TopState state = Cluster(1, 0);
  state.jobs[0].mutable_progress()->set_stalled(true);
  state.jobs[0].mutable_progress()->set_whereabouts("in step 11");
  EXPECT_THAT(RenderTop(state, {0, 0}, true, Moment(60)), HasSubstr("stalled: in step 11"));
}

}  // namespace
}  // namespace tandem::cli
