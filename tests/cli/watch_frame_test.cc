// SPDX-License-Identifier: Apache-2.0
#include "cli/watch/watch_frame.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "absl/strings/str_cat.h"
#include "cli/terminal/display_text.h"
#include "cli/terminal/job_text.h"
#include "tests/cli/sample_job.h"

namespace tandem::cli {
namespace {

using testing::HasSubstr;
using testing::Not;

std::string Text(const std::vector<StyledLine>& lines, int width) {
  std::string text;
  for (const StyledLine& line : lines) {
    absl::StrAppend(&text, line.Render(width, /*color=*/false, /*unicode=*/true), "\n");
  }
  return text;
}

std::string Frame(const WatchState& state, int width, absl::Time now) {
  return Text(RenderFrame(state, {.columns = width, .rows = 24}, /*unicode=*/true, now), width);
}

// Step 134 of 200, one a second, validated at 100, with norms.
WatchState RunningState() {
  WatchState state;
  Apply(Snapshot(SampleJob(v1::JOB_STATE_RUNNING, 4)), Moment(0), true, state);
  v1::WatchResponse table;
  for (const char* name : {"model.embed_tokens.weight", "model.layers.0.self_attn.q_proj.weight",
                           "model.layers.3.mlp.down_proj.weight"}) {
    table.mutable_table()->add_parameters()->set_name(name);
  }
  Apply(table, Moment(0), true, state);
  for (int step = 1; step <= 134; ++step) {
    v1::StepReport report = SampleReport(step);
    if (step % 50 == 0) {
      (*report.mutable_scalars())["validation_loss"] = 2.4871;
    }
    v1::Norms& norms = *report.mutable_norms();
    for (int i = 0; i < 3; ++i) {
      norms.add_weight(12.31 + i);
      norms.add_gradient(0.0412);
      norms.add_update(0.011 * (i + 1));
    }
    Apply(Reported(report), Moment(step), true, state);
  }
  return state;
}

TEST(WatchFrameTest, Running80) {
  EXPECT_EQ(Frame(RunningState(), 80, Moment(134)),
            R"(headers  RUNNING  2 ranks on cpu  2 workers  3f2a91c07be4
━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━─────────────────  step 134/200  67%  ETA 1:06
loss 2.0261  █▃▂▂▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁  validation 2.4871 at 100
8,192 tokens/s   0.500 s/step   grad norm 0.842   lr 7.61e-04
largest updates, step 134                   weight  gradient    update  relative
model.layers.3.mlp.down_proj.weight           14.3    0.0412    0.0330  2.31e-03
model.layers.0.self_attn.q_proj.weight        13.3    0.0412    0.0220  1.65e-03
model.embed_tokens.weight                     12.3    0.0412    0.0110  8.94e-04
)");
}

v1::WatchResponse Standstill(double age, bool stopped, bool stalled) {
  v1::WatchResponse response;
  v1::Progress& progress = *response.mutable_progress();
  progress.set_rank(1);
  progress.set_worker("local-2");
  progress.mutable_age()->set_seconds(static_cast<int64_t>(age));
  progress.set_step(135);
  progress.set_whereabouts("in step 135, forward of microbatch 2");
  progress.set_stopped(stopped);
  progress.set_stalled(stalled);
  return response;
}

TEST(WatchFrameTest, AStalledJobNamesTheRankBehind) {
  WatchState state = RunningState();
  EXPECT_FALSE(Apply(Standstill(4, true, false), Moment(138), true, state).stalled);
  EXPECT_NE(Frame(state, 100, Moment(138)).find("ETA"), std::string::npos) << "a step may take this long";
  EXPECT_TRUE(Apply(Standstill(7, true, true), Moment(141), true, state).stalled);
  const std::string frame = Frame(state, 100, Moment(143));
  EXPECT_THAT(frame, Not(HasSubstr("ETA")));
  EXPECT_THAT(
      frame,
      HasSubstr("no progress for 0:09: rank 1 on worker local-2 is stopped, by a signal or a debugger, "
                "in step 135,\nforward of microbatch 2\n"));
  EXPECT_FALSE(Apply(Standstill(8, true, true), Moment(142), true, state).stalled) << "reported before";
  EXPECT_TRUE(Apply(Standstill(0, false, false), Moment(144), true, state).stalled);
  EXPECT_THAT(Frame(state, 100, Moment(144)), Not(HasSubstr("no progress")));
  Apply(Standstill(7, false, true), Moment(160), true, state);
  EXPECT_TRUE(Apply(Reported(SampleReport(135)), Moment(161), true, state).stalled) << "a step is an end too";
  EXPECT_THAT(Frame(state, 100, Moment(161)), Not(HasSubstr("no progress")));
  EXPECT_FALSE(Apply(Standstill(8, false, true), Moment(161), true, state).stalled)
      << "of a step that is done";
}

TEST(WatchFrameTest, SkippedStepsAreShown) {
  WatchState state = RunningState();
  EXPECT_THAT(Frame(state, 100, Moment(134)), Not(HasSubstr("skipped")));
  (*state.last->mutable_scalars())["skipped_steps"] = 67;
  EXPECT_THAT(Frame(state, 100, Moment(134)), HasSubstr("67 of 134 steps skipped (50.0 %)\n"));
  const std::string summary = Text(RenderSummary(state, 100), 100);
  EXPECT_THAT(summary, HasSubstr("not finite: 67 of 134 steps skipped (50.0 %)"));
}

TEST(WatchFrameTest, Running40) {
  EXPECT_EQ(Frame(RunningState(), 40, Moment(134)),
            R"(headers  RUNNING  2 ranks on cpu
━━━━━━━────  step 134/200  67%  ETA 1:06
loss 2.0261  validation 2.4871 at 100
8,192 tokens/s   grad norm 0.842
largest updates, step 134           rel.
…layers.3.mlp.down_proj.weight  2.31e-03
…ers.0.self_attn.q_proj.weight  1.65e-03
model.embed_tokens.weight       8.94e-04
)");
}

TEST(WatchFrameTest, Running120) {
  EXPECT_EQ(Frame(RunningState(), 120, Moment(134)),
            R"(headers  RUNNING  2 ranks on cpu  2 workers  3f2a91c07be4
━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━────────────────────────  step 134/200  67%  ETA 1:06
loss 2.0261  █▃▂▂▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁  validation 2.4871 at 100
8,192 tokens/s   0.500 s/step   grad norm 0.842   lr 7.61e-04
largest updates, step 134                           weight  gradient    update  relative
model.layers.3.mlp.down_proj.weight                   14.3    0.0412    0.0330  2.31e-03
model.layers.0.self_attn.q_proj.weight                13.3    0.0412    0.0220  1.65e-03
model.embed_tokens.weight                             12.3    0.0412    0.0110  8.94e-04
)");
}

TEST(WatchFrameTest, NeverWiderOrHigherThanTheTerminal) {
  WatchState state = RunningState();
  state.lost = WatchState::Lost{Moment(120), "Connection refused"};
  state.notice = "cancelling; Ctrl-C again kills it";
  for (int width = 1; width <= 130; ++width) {
    for (int rows = 1; rows <= 30; rows += 3) {
      const std::vector<StyledLine> lines = RenderFrame(state, {width, rows}, true, Moment(134));
      EXPECT_LE(static_cast<int>(lines.size()), std::max(1, rows - 1));
      for (const StyledLine& line : lines) {
        EXPECT_LE(DisplayWidth(line.Render(width, false, true)), width);
      }
    }
  }
}

TEST(WatchFrameTest, AJobThatWaitsSaysWhy) {
  v1::Job job = SampleJob(v1::JOB_STATE_QUEUED, 1);
  job.set_reason("NotEnoughSlots");
  job.set_message("2 slots are needed, 1 is free on 1 connected worker");
  WatchState state;
  Apply(Snapshot(job), Moment(0), true, state);
  EXPECT_EQ(Frame(state, 80, Moment(1)),
            "headers  QUEUED  2 ranks  3f2a91c07be4\n"
            "NotEnoughSlots: 2 slots are needed, 1 is free on 1 connected worker\n");
  EXPECT_EQ(Frame(state, 40, Moment(1)),
            "headers  QUEUED  2 ranks  3f2a91c07be4\n"
            "NotEnoughSlots: 2 slots are needed, 1 is\n"
            "free on 1 connected worker\n");
}

TEST(WatchFrameTest, HeaderNamesTheDevice) {
  v1::Job job = SampleJob(v1::JOB_STATE_RUNNING, 4);
  job.mutable_resolved()->mutable_resources()->set_device(v1::DEVICE_AUTO);
  job.mutable_attempts(0)->set_device(v1::DEVICE_CUDA);
  const auto header = [&job] {
    WatchState state;
    Apply(Snapshot(job), Moment(0), true, state);
    return HeaderLine(state, 40).Render(40, false, true);
  };
  EXPECT_EQ(header(), "headers  RUNNING  2 ranks on cuda")
      << "what auto was decided to be; a narrow terminal shows the device before the workers";
  job.set_state(v1::JOB_STATE_QUEUED);  // to be placed again
  EXPECT_EQ(header(), "headers  QUEUED  2 ranks  3f2a91c07be4") << "it may get another device";
  job.mutable_resolved()->mutable_resources()->set_device(v1::DEVICE_CPU);
  EXPECT_EQ(header(), "headers  QUEUED  2 ranks on cpu");
}

TEST(WatchFrameTest, BeforeTheFirstStepTheBarIsEmpty) {
  WatchState state;
  Apply(Snapshot(SampleJob(v1::JOB_STATE_RUNNING, 4)), Moment(0), true, state);
  EXPECT_EQ(Frame(state, 40, Moment(1)),
            "headers  RUNNING  2 ranks on cpu\n"
            "────────────────────────  step 0/200  0%\n");
}

TEST(WatchFrameTest, SaysThatTheControllerIsAway) {
  WatchState state = RunningState();
  state.lost = WatchState::Lost{Moment(134), "Connection refused"};
  EXPECT_THAT(Frame(state, 80, Moment(146)),
              HasSubstr("controller away for 0:12; training goes on; reconnecting\n"));
  state.ends_with_controller = true;
  EXPECT_THAT(Frame(state, 80, Moment(146)), HasSubstr("controller away for 0:12; reconnecting\n"));
}

TEST(WatchFrameTest, SaysThatNoStepCame) {
  EXPECT_THAT(Frame(RunningState(), 80, Moment(136)), Not(HasSubstr("no new step")));
  EXPECT_THAT(Frame(RunningState(), 80, Moment(144)), HasSubstr("no new step for 0:10\n"));
}

TEST(WatchFrameTest, SaysThatCheckpointsFailUntilOneIsSaved) {
  WatchState state = RunningState();
  v1::Job job = SampleJob(v1::JOB_STATE_RUNNING, 5);
  v1::CheckpointRecord& record = *job.mutable_checkpoints();
  record.set_failed(12);
  record.set_failed_in_a_row(12);
  record.mutable_last_failure()->set_step(60);
  record.mutable_last_failure()->set_message("write /data: No space left on device");
  Apply(Changed(job), Moment(134), true, state);
  EXPECT_NE(Frame(state, 100, Moment(134))
                .find("the last 12 checkpoints failed, at step 60: write /data: No space left on device\n"),
            std::string::npos)
      << Frame(state, 100, Moment(134));
  record.set_failed_in_a_row(0);
  record.set_saved(1);
  job.set_revision(6);
  Apply(Changed(job), Moment(134), true, state);
  EXPECT_THAT(Frame(state, 100, Moment(134)), Not(HasSubstr("failed")));
}

TEST(WatchFrameTest, NamesAnOlderCheckpointAtTheStart) {
  WatchState state = RunningState();
  v1::Job job = SampleJob(v1::JOB_STATE_RUNNING, 5);
  job.mutable_checkpoints()->add_resume()->set_message("step-9 does not verify; the job goes on from step 6");
  Apply(Changed(job), Moment(134), true, state);
  EXPECT_THAT(Frame(state, 80, Moment(134)),
              HasSubstr("step-9 does not verify; the job goes on from step 6\n"));
}

TEST(WatchFrameTest, AsciiTerminalsGetAscii) {
  for (const StyledLine& line : RenderFrame(RunningState(), {80, 24}, /*unicode=*/false, Moment(134))) {
    for (const char c : line.Render(80, false, false)) {
      EXPECT_TRUE(c >= ' ' && c < 0x7f) << static_cast<int>(c);
    }
  }
}

TEST(WatchSummaryTest, Succeeded) {
  WatchState state = RunningState();
  v1::Job job = SampleJob(v1::JOB_STATE_SUCCEEDED, 9);
  *job.mutable_ended() = At(127);
  job.mutable_resolved()->mutable_training()->set_steps(134);
  job.mutable_checkpoints()->set_last_step(134);
  Apply(Changed(job), Moment(127), true, state);
  EXPECT_EQ(Text(RenderSummary(state, 80), 80),
            "headers SUCCEEDED after 134 steps in 2 min 5 s\n"
            "  loss        2.0261\n"
            "  validation  2.4871 at step 100, from 2.4871 at step 50\n"
            "  speed       8,192 tokens/s on average\n"
            "  checkpoint  /data/runs/headers/step-134 (step 134)\n");
}

TEST(WatchSummaryTest, AFailureIsExplainedInOneParagraph) {
  WatchState state = RunningState();
  v1::Job job = SampleJob(v1::JOB_STATE_FAILED, 9);
  *job.mutable_ended() = At(70);
  v1::Cause& cause = *job.mutable_cause();
  cause.set_class_(v1::FAILURE_CLASS_INFRASTRUCTURE);
  cause.set_reason("RankKilled");
  cause.set_rank(1);
  cause.set_worker("local-2");
  cause.set_signal(9);
  cause.set_step(135);
  cause.set_instruction("F layers.3.mlp 1");
  cause.set_message("killed from outside");
  Apply(Changed(job), Moment(135), true, state);
  EXPECT_EQ(Text(RenderSummary(state, 60), 60),
            "headers FAILED at step 134 of 200 in 1 min 8 s\n"
            "  RankKilled: Rank 1 on worker local-2 was killed by signal\n"
            "  9 (SIGKILL) at step 135 in \"F layers.3.mlp 1\": killed from\n"
            "  outside.\n"
            "  loss        2.0261\n"
            "  validation  2.4871 at step 100, from 2.4871 at step 50\n"
            "  speed       8,192 tokens/s on average\n"
            "  checkpoints /data/runs/headers\n");
  EXPECT_EQ(RankToBlame(job), 1);
}

TEST(CauseTextTest, MessageIsNotRepeated) {
  v1::Cause cause;
  cause.set_rank(1);
  cause.set_worker("local-2");
  cause.set_signal(9);
  cause.set_step(20);
  cause.set_last_instruction("forward layers.0.attention mb 0");
  cause.set_message("rank 1 was killed by signal 9 (SIGKILL) in step 20");
  EXPECT_EQ(CauseText(cause),
            "Rank 1 was killed by signal 9 (SIGKILL) in step 20 (worker local-2, the last to finish was "
            "\"forward layers.0.attention mb 0\").");
}

TEST(CauseTextTest, NonfiniteGradientsBlameNoRank) {
  v1::Cause cause;
  cause.set_class_(v1::FAILURE_CLASS_NUMERIC);
  cause.set_rank(2);
  cause.set_worker("w1");
  cause.set_step(7);
  cause.set_exit_code(83);
  cause.set_message("gradients of step 7 are not finite: model.norm.weight (held by rank 1)");
  EXPECT_EQ(CauseText(cause), "Gradients of step 7 are not finite: model.norm.weight (held by rank 1).");
}

TEST(CauseTextTest, FailedInstructionIsNotTheFinishedOne) {
  v1::Cause cause;
  cause.set_rank(1);
  cause.set_step(20);
  cause.set_instruction("unshard layers.1 mb 0");
  EXPECT_EQ(CauseText(cause), "Rank 1 failed at step 20 in \"unshard layers.1 mb 0\".");
  cause.clear_instruction();
  cause.set_last_instruction("unshard layers.1 mb 0");
  EXPECT_EQ(CauseText(cause), "Rank 1 failed at step 20 after \"unshard layers.1 mb 0\".");
}

TEST(CauseTextTest, SaysOnlyWhatIsKnown) {
  v1::Cause cause;
  EXPECT_EQ(CauseText(cause), "");
  cause.set_worker("b");
  EXPECT_EQ(CauseText(cause), "Worker b failed.");
  cause.set_message("away for 30 s");
  EXPECT_EQ(CauseText(cause), "Worker b failed: away for 30 s.");
  cause.Clear();
  cause.set_class_(v1::FAILURE_CLASS_PEER_LOST);
  cause.set_rank(0);
  cause.set_exit_code(64);
  cause.add_missing_ranks(2);
  cause.add_missing_ranks(3);
  EXPECT_EQ(CauseText(cause), "Rank 0 ended with exit code 64; ranks 2, 3 had not arrived.");
}

TEST(CauseTextTest, NamedRanksAreNotNamedAgain) {
  v1::Cause lost;
  lost.set_class_(v1::FAILURE_CLASS_INFRASTRUCTURE);
  lost.set_reason("WorkerLost");
  lost.set_worker("w1");
  lost.add_missing_ranks(0);
  lost.add_missing_ranks(1);
  lost.set_message("worker w1 has been away for 30s; its ranks: 0, 1");
  EXPECT_EQ(CauseText(lost), "Worker w1 has been away for 30s; its ranks: 0, 1.");
  v1::Cause late = lost;
  late.set_reason("StartTimeout");
  late.set_rank(0);
  late.set_message("not ready within 15m: rank 0 on worker w1 is loading, rank 1 on worker w1 is loading");
  EXPECT_EQ(CauseText(late),
            "Rank 0 on worker w1 failed: not ready within 15m: rank 0 on worker w1 is loading, rank 1 on "
            "worker w1 is loading.");
}

TEST(WatchSummaryTest, CancelledBeforeItStarted) {
  v1::Job job = SampleJob(v1::JOB_STATE_CANCELLED, 2);
  job.clear_attempts();
  job.set_reason("CancelledByUser");
  *job.mutable_ended() = At(5);
  WatchState state;
  Apply(Snapshot(job), Moment(5), true, state);
  EXPECT_EQ(Text(RenderSummary(state, 80), 80),
            "headers CANCELLED at step 0 of 200 in 5.0 s\n"
            "  CancelledByUser\n"
            "  checkpoints /data/runs/headers\n");
}

}  // namespace
}  // namespace tandem::cli
