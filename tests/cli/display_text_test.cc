// SPDX-License-Identifier: Apache-2.0
#include "cli/terminal/display_text.h"

#include <gtest/gtest.h>

#include "cli/terminal/number_text.h"
#include "cli/terminal/rank_list.h"
#include "cli/terminal/styled_line.h"
#include "cli/terminal/table.h"
#include "plan/quantity_text.h"

namespace tandem::cli {
namespace {

TEST(EscapeTest, ControlCharactersAndBadBytesBecomeVisible) {
  EXPECT_EQ(Escape("a\x1b[31mb\n\t\x7f"), "a\\x1b[31mb\\n\\t\\x7f");
  EXPECT_EQ(Escape("\xff\xc3"), "\\xff\\xc3");
  EXPECT_EQ(Escape("\xe2\x80\xae"
                   "abc"),
            "\\u202eabc");  // right-to-left override
  EXPECT_EQ(Escape("größe 模型"), "größe 模型");
}

TEST(DisplayWidthTest, CountsColumnsNotBytes) {
  EXPECT_EQ(DisplayWidth("größe"), 5);
  EXPECT_EQ(DisplayWidth("模型"), 4);
  EXPECT_EQ(DisplayWidth("━▁…"), 3);
  EXPECT_EQ(DisplayWidth("e\xcc\x81"), 1);
}

TEST(CutTest, CutTextKeepsTheWidth) {
  EXPECT_EQ(Cut("model.layers.0", 14, true), "model.layers.0");
  EXPECT_EQ(Cut("model.layers.0", 6, true), "model…");
  EXPECT_EQ(Cut("model.layers.0", 6, false), "model~");
  EXPECT_EQ(CutLeft("model.layers.0", 6, true), "…ers.0");
  EXPECT_EQ(Cut("模型", 3, true), "模…");
  EXPECT_EQ(Cut("abc", 0, true), "");
}

TEST(WrapTest, NoLineIsWiderThanTheTerminal) {
  const std::string text =
      "Rank 1 on worker local-2 was killed by signal 9 (SIGKILL) at step 134 "
      "in aVeryLongWordThatDoesNotFitIntoOneLine.";
  for (int width = 12; width < 90; ++width) {
    for (const std::string& line : Wrap(text, width, "  ")) {
      EXPECT_LE(DisplayWidth(line), width) << line;
    }
  }
  EXPECT_EQ(Wrap("a b c", 0, "  "), (std::vector<std::string>{"  a b c"}));
  EXPECT_TRUE(Wrap("", 40, "  ").empty());
}

TEST(NumberTextTest, ReadsWell) {
  EXPECT_EQ(plan::GroupedText(0), "0");
  EXPECT_EQ(plan::GroupedText(999), "999");
  EXPECT_EQ(plan::GroupedText(-1234567), "-1,234,567");
  EXPECT_EQ(RateText(0), "-");
  EXPECT_EQ(RateText(5243.2), "5,243");
  EXPECT_EQ(RateText(152'400), "152k");
  EXPECT_EQ(RateText(1'310'000), "1.31M");
  EXPECT_EQ(MagnitudeText(0.8423), "0.842");
  EXPECT_EQ(MagnitudeText(12.31), "12.3");
  EXPECT_EQ(MagnitudeText(0.00004), "4.00e-05");
  EXPECT_EQ(LossText(2.51234), "2.5123");
  EXPECT_EQ(LossText(NAN), "nan");
  EXPECT_EQ(BytesText(64 << 20), "64 MiB");
  EXPECT_EQ(BytesText(1500), "1.5 KiB");
  EXPECT_EQ(ClockText(absl::Seconds(41)), "0:41");
  EXPECT_EQ(ClockText(absl::Seconds(3723)), "1:02:03");
  EXPECT_EQ(ClockText(absl::Hours(51)), "2d 03h");
  EXPECT_EQ(SpanText(absl::Seconds(125)), "2 min 5 s");
  EXPECT_EQ(StepTimeText(0.0081), "8.10 ms");
}

TEST(RankListTest, RunsAreRangesInTheGivenOrder) {
  EXPECT_EQ(RankList({0, 1, 2, 3}), "0-3");
  EXPECT_EQ(RankList({0, 2, 4, 6}), "0-6:2");
  EXPECT_EQ(RankList({0, 2, 4}), "0 2 4");
  EXPECT_EQ(RankList({5, 5, 4, 3, 2}), "5 5 4 3 2");
  EXPECT_EQ(RankList({0, 1, 8, 9, 2, 3, 10, 11}), "0 1 8 9 2 3 10 11");
  EXPECT_EQ(RankList({0, 1}), "0 1");
  EXPECT_EQ(RankList({0, 1, 2, 5, 7, 8, 9}), "0-2 5 7-9");
  EXPECT_EQ(RankList({}), "");
}

TEST(RankListTest, TheShortOneLeavesOutTheMiddle) {
  const std::vector<int> ranks = {0, 1, 2, 10, 11, 12, 20, 21, 22, 30};
  EXPECT_EQ(ShortRankList(ranks, 4, /*unicode=*/true), "0-2 10-12 20-22 30");
  EXPECT_EQ(ShortRankList(ranks, 3, /*unicode=*/true), "0-2 10-12 … 30");
  EXPECT_EQ(ShortRankList(ranks, 2, /*unicode=*/false), "0-2 ... 30");
}

TEST(LogLineTest, OurJsonLinesBecomeReadableAndOthersStay) {
  EXPECT_EQ(
      ReadableLogLine(
          R"({"ts":"2024-05-01T12:00:01.5Z","level":"error","msg":"no file","component":"trainer","rank":1})"),
      "12:00:01 error trainer: no file  rank=1");
  EXPECT_EQ(ReadableLogLine("{not json"), "{not json");
  EXPECT_EQ(ReadableLogLine("plain \x1b[2J"), "plain \\x1b[2J");
}

TEST(FitTest, TheLeastImportantPartsGoFirst) {
  const std::vector<Part> parts = {
      {StyledLine("headers"), 8}, {StyledLine("RUNNING"), 9}, {StyledLine("2 ranks"), 5}};
  EXPECT_EQ(Fit(parts, 40, 2).Render(40, false, true), "headers  RUNNING  2 ranks");
  EXPECT_EQ(Fit(parts, 20, 2).Render(20, false, true), "headers  RUNNING");
  EXPECT_EQ(Fit(parts, 10, 2).Render(10, false, true), "RUNNING");
  EXPECT_EQ(Fit(parts, 4, 2).Render(4, false, true), "RUN…");
}

TEST(StyledLineTest, ColoursAddNoColumns) {
  const StyledLine line = StyledLine("ok", Style::kGood).Add(" yes");
  EXPECT_EQ(line.width(), 6);
  EXPECT_EQ(line.Render(0, true, true), "\x1b[32mok\x1b[0m yes");
}

TEST(TableTest, WidthIsContentOrTerminal) {
  Table table({Shrinking("NAME"), Right("STEP"), Shrinking("REASON")});
  table.Add({"headers", "134", ""});
  table.Add({"a-very-long-name-of-a-job", "7", "NotEnoughSlots"});
  EXPECT_EQ(table.Render(0, true),
            "NAME                       STEP  REASON\n"
            "headers                     134\n"
            "a-very-long-name-of-a-job     7  NotEnoughSlots\n");
  EXPECT_EQ(table.Render(32, true),
            "NAME        STEP  REASON\n"
            "headers      134\n"
            "a-very-lo…     7  NotEnoughSlots\n");
  EXPECT_EQ(table.Render(10, true), "NAME     …\nheaders  …\na-very-… …\n");
}

}  // namespace
}  // namespace tandem::cli
