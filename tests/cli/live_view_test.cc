// SPDX-License-Identifier: Apache-2.0
// The display on a terminal, as a terminal shows it.
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "cli/watch/watch_view.h"
#include "tests/cli/recorded_console.h"
#include "tests/cli/sample_job.h"
#include "tests/cli/terminal_model.h"

namespace tandem::cli {
namespace {

class LiveViewTest : public testing::TestWithParam<TerminalModel::OnResize> {
 protected:
  LiveViewTest() {
    console_.terminal = true;
    state_.job = SampleJob(v1::JOB_STATE_RUNNING, 4);
    state_.known = true;
    ApplyReport(SampleReport(1), Moment(1), /*live=*/true, state_);
    v1::Norms& norms = state_.norms;
    for (int i = 0; i < 5; ++i) {
      norms.add_weight(1);
      norms.add_gradient(1);
      norms.add_update(0.1 * i);
      state_.table.add_parameters()->set_name("model.layers." + std::to_string(i) +
                                              ".self_attn.q_proj.weight");
    }
    terminal_.Write("$ tandem watch headers\r\n");
  }

  void Draw() {
    now_ += 1;
    console_.out.clear();
    view_->Show(state_, {}, Moment(now_));
    terminal_.Write(console_.out);
  }

  void Resize(int columns, int rows) {
    console_.size = {.columns = columns, .rows = rows};
    terminal_.Resize(columns, rows);
  }

  // Lines of the screen that begin so.
  int Count(const std::string& begin) const {
    int count = 0;
    for (const std::string& line : terminal_.Screen()) {
      count += line.rfind(begin, 0) == 0 ? 1 : 0;
    }
    return count;
  }

  RecordedConsole console_;
  WatchState state_;
  double now_ = 1;
  std::unique_ptr<WatchView> view_ = MakeLiveView(console_);
  TerminalModel terminal_{80, 24, GetParam()};
};

TEST_P(LiveViewTest, OneFrameIsDrawnBelowTheEarlierOutput) {
  for (int i = 0; i < 3; ++i) {
    Draw();
  }
  EXPECT_EQ(terminal_.Screen()[0], "$ tandem watch headers");
  EXPECT_EQ(Count("headers"), 1);
  EXPECT_EQ(Count("model.layers."), 5);
}

TEST_P(LiveViewTest, AResizeLeavesNothingOfTheFramesBefore) {
  Draw();
  for (const auto& [columns, rows] : std::vector<std::pair<int, int>>{
           {40, 24}, {100, 24}, {100, 4}, {100, 24}, {30, 8}, {120, 40}, {20, 40}, {80, 24}}) {
    Resize(columns, rows);
    Draw();
    Draw();
    std::string screen;
    for (const std::string& line : terminal_.Screen()) {
      screen += line + "\n";
    }
    EXPECT_EQ(Count("headers"), 1) << columns << " x " << rows << "\n" << screen;
    EXPECT_EQ(Count("loss"), 1) << columns << " x " << rows << "\n" << screen;
  }
}

INSTANTIATE_TEST_SUITE_P(Terminals, LiveViewTest,
                         testing::Values(TerminalModel::OnResize::kWrapAgain, TerminalModel::OnResize::kCut),
                         [](const auto& info) {
                           return info.param == TerminalModel::OnResize::kCut ? "ThatCut" : "ThatWrapAgain";
                         });

}  // namespace
}  // namespace tandem::cli
