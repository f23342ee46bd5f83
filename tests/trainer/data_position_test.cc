// SPDX-License-Identifier: Apache-2.0
#include "trainer/data_position.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <iostream>
#include <map>
#include <memory>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "data/draws.h"
#include "trainer/failure.h"

namespace tandem::trainer {
namespace {

using checkpoint::DataSegment;
using checkpoint::Info;
using checkpoint::TextPosition;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

DataSegment Reading(std::vector<TextPosition> sources, int64_t batch = 10) {
  return {.global_batch_size = batch, .sequence_length = 16, .seed = 1, .sources = std::move(sources)};
}

std::unique_ptr<data::Draws> DrawsOf(const DataSegment& segment) {
  std::vector<data::Draws::Source> sources;
  for (const TextPosition& text : segment.sources) {
    sources.push_back({.name = text.name, .windows = text.windows, .weight = text.weight});
  }
  return std::make_unique<data::Draws>(std::move(sources), segment.seed, segment.shuffles);
}

std::vector<int64_t> FirstWindows(const DataSegment& segment) {
  std::vector<int64_t> first;
  for (const TextPosition& text : segment.sources) {
    first.push_back(text.first);
  }
  return first;
}

// What a checkpoint of that step says.
Info After(const DataStart& start, int64_t step) {
  const DataSegment& segment = start.segments.back();
  const auto draws = DrawsOf(segment);
  draws->Begin(FirstWindows(segment));
  return {.step = step,
          .data = SegmentsUpTo(start.segments,
                               draws->Taken((step - segment.from_step) * segment.global_batch_size))};
}

std::string DataRefusal(const Info& there, const DataSegment& now) {
  try {
    ContinueData(there, now);
  } catch (const UserError& error) {
    EXPECT_EQ(error.reason, "DataPositionDiffers");
    return error.what();
  }
  return "";
}

const std::vector<TextPosition> kTwo = {{.name = "a", .weight = 7, .windows = 30},
                                        {.name = "b", .weight = 3, .windows = 11}};

TEST(DataPositionTest, TheSameJobGoesOnInItsSegment) {
  const DataStart start = ContinueData(Info(), Reading(kTwo));
  EXPECT_THAT(start.changes, IsEmpty());
  const DataStart again = ContinueData(After(start, 3), Reading(kTwo));
  EXPECT_THAT(again.changes, IsEmpty());
  ASSERT_EQ(again.segments.size(), 1u);
  EXPECT_EQ(again.segments[0].from_step, 0);
  EXPECT_EQ(again.segments[0].sources[0].taken, 21);
  EXPECT_EQ(again.segments[0].sources[1].taken, 9);
}

TEST(DataPositionTest, OtherCountsThanItsOwnAreRefused) {
  Info there = After(ContinueData(Info(), Reading(kTwo)), 3);
  there.data[0].sources[1].taken = 8;
  EXPECT_THAT(
      DataRefusal(there, Reading(kTwo)),
      HasSubstr("the checkpoint of step 3 says of its texts counts 8 sequences of b, and this build 9"));
  for (const auto& change : std::vector<void (*)(DataSegment&)>{
           [](DataSegment& segment) { segment.sources[0].weight = 0; },
           [](DataSegment& segment) { segment.sources[0].weight = INT64_MAX; },
           [](DataSegment& segment) { segment.sources[0].weight = 1'001'001; },
           [](DataSegment& segment) { segment.sources.resize(1001, kTwo[0]); },
           [](DataSegment& segment) { segment.sources[0].windows = 0; },
           [](DataSegment& segment) { segment.sources[0].first = -1; },
           [](DataSegment& segment) { segment.sources.clear(); },
           [](DataSegment& segment) { segment.from_step = 4; },
           [](DataSegment& segment) { segment.global_batch_size = 0; }}) {
    Info damaged = After(ContinueData(Info(), Reading(kTwo)), 3);
    change(damaged.data[0]);
    EXPECT_THAT(DataRefusal(damaged, Reading(kTwo)), HasSubstr("contradicts itself"));
  }
}

TEST(DataPositionTest, OtherWeightsGoOnWhereEachTextWas) {
  std::vector<TextPosition> other = kTwo;
  other[0].weight = 1;
  other[1].weight = 1;
  const DataStart start = ContinueData(After(ContinueData(Info(), Reading(kTwo)), 3), Reading(other));
  ASSERT_EQ(start.segments.size(), 2u);
  const DataSegment& segment = start.segments[1];
  EXPECT_EQ(segment.from_step, 3);
  EXPECT_EQ(segment.from_sample, 30);
  EXPECT_THAT(FirstWindows(segment), ElementsAre(21, 9));
  EXPECT_THAT(start.changes, ElementsAre("the weights are 1, 1 millionths, and were 7, 3",
                                         "it goes on at sequence 31, and none is read again or skipped"));
}

TEST(DataPositionTest, ReturningTextContinues) {
  const DataStart first = ContinueData(After(ContinueData(Info(), Reading(kTwo)), 3), Reading({kTwo[0]}));
  EXPECT_THAT(first.changes, testing::Contains("b is no longer read, after 9 sequences"));
  const DataStart second =
      ContinueData(After(first, 5), Reading({kTwo[0], kTwo[1], {.name = "c", .weight = 1, .windows = 5}}));
  EXPECT_THAT(second.changes, testing::Contains("c is new and begins with its first epoch"));
  EXPECT_THAT(FirstWindows(second.segments.back()), ElementsAre(41, 9, 0));
  EXPECT_EQ(second.segments.back().from_sample, 50);
}

TEST(DataPositionTest, AnotherSeedBeginsTheNextEpochs) {
  DataSegment other = Reading(kTwo);
  other.seed = 2;
  const DataStart start = ContinueData(After(ContinueData(Info(), Reading(kTwo)), 5), other);
  EXPECT_THAT(FirstWindows(start.segments.back()), ElementsAre(60, 22));  // 35 of 30, 15 of 11 were taken
  EXPECT_THAT(start.changes,
              testing::Contains("a begins epoch 3, and 25 sequences of epoch 2 of 30 are skipped"));
  EXPECT_THAT(start.changes,
              testing::Contains("b begins epoch 3, and 7 sequences of epoch 2 of 11 are skipped"));
}

TEST(DataPositionTest, AnotherLengthCountsItsOwnSequences) {
  DataSegment other =
      Reading({{.name = "a", .weight = 7, .windows = 61}, {.name = "b", .weight = 3, .windows = 23}});
  other.sequence_length = 8;
  const DataStart start = ContinueData(After(ContinueData(Info(), Reading(kTwo)), 5), other);
  EXPECT_THAT(FirstWindows(start.segments.back()), ElementsAre(2 * 61, 2 * 23));
}

TEST(DataPositionTest, OlderCheckpointHasReadItsText) {
  const std::vector<TextPosition> one = {{.weight = 1'000'000, .windows = 30}};
  const Info there{.step = 4, .seed = 1, .global_batch_size = 10, .sequence_length = 16};
  const DataStart same = ContinueData(there, Reading(one));
  EXPECT_THAT(same.changes, IsEmpty());
  EXPECT_EQ(same.segments.back().from_step, 0);
  const DataStart larger = ContinueData(there, Reading(one, 20));
  EXPECT_THAT(FirstWindows(larger.segments.back()), ElementsAre(40));
  const DataStart blend = ContinueData(there, Reading(kTwo));
  EXPECT_THAT(FirstWindows(blend.segments.back()), ElementsAre(0, 0));
}

TEST(DataPositionTest, TextEnteringAListBeginsAnEpoch) {
  const std::vector<TextPosition> alone = {{.digest = "da", .weight = 1, .windows = 30}};
  const std::vector<TextPosition> list = {{.name = "a", .digest = "da", .weight = 7, .windows = 30},
                                          {.name = "b", .digest = "db", .weight = 3, .windows = 11}};
  const Info there = After(ContinueData(Info(), Reading(alone)), 4);
  const DataStart start = ContinueData(there, Reading(list));
  EXPECT_THAT(FirstWindows(start.segments.back()), ElementsAre(60, 0));  // 40 of 30 were taken
  EXPECT_THAT(start.changes, ElementsAre("a begins epoch 3, and 20 sequences of epoch 2 of 30 are skipped",
                                         "b is new and begins with its first epoch",
                                         "the weights are 7, 3 millionths, and were 1"));
  const Info older{.step = 4, .seed = 1, .data_digest = "da", .global_batch_size = 10, .sequence_length = 16};
  EXPECT_THAT(FirstWindows(ContinueData(older, Reading(list)).segments.back()), ElementsAre(60, 0));
  // And back: behind what it read in the list, not where it was alone.
  const DataStart back = ContinueData(After(start, 6), Reading(alone));
  EXPECT_THAT(FirstWindows(back.segments.back()), ElementsAre(90));
  EXPECT_THAT(back.changes, testing::Contains("b is no longer read, after 6 sequences"));
}

TEST(DataPositionTest, ATextThatWasReplacedIsNamed) {
  std::vector<TextPosition> before = kTwo;
  before[0].digest = "old";
  before[1].digest = "same";
  std::vector<TextPosition> after = before;
  after[0].digest = "new";
  const DataStart start = ContinueData(After(ContinueData(Info(), Reading(before)), 3), Reading(after));
  ASSERT_EQ(start.segments.size(), 2u);
  EXPECT_EQ(start.segments[1].sources[0].digest, "new");
  EXPECT_THAT(FirstWindows(start.segments[1]), ElementsAre(21, 9));
  EXPECT_THAT(start.changes, ElementsAre("a is not what it was, or another part of it is held out (digest "
                                         "new, was old) and goes on after 21 sequences"));
}

// Three changes in one run, against windows that are counted one by one.
TEST(DataPositionTest, ChangesRepeatNoSequenceWithinAnEpoch) {
  const auto seed = std::random_device()();
  std::cout << "seed " << seed << "\n";
  std::mt19937 random(seed);
  for (int run = 0; run < 100; ++run) {
    std::vector<TextPosition> all;
    for (const char* name : {"a", "b", "c", "d"}) {
      all.push_back({.name = name, .windows = 5 + static_cast<int64_t>(random() % 60)});
    }
    std::map<std::string, std::vector<int64_t>> read;  // windows, by text
    Info there;
    for (int change = 0; change < 4; ++change) {
      std::vector<TextPosition> chosen;
      for (TextPosition text : all) {
        text.weight = 1 + static_cast<int64_t>(random() % 9);
        if (chosen.empty() || random() % 3 > 0) {
          chosen.push_back(text);
        }
      }
      const int64_t batch = 1 + static_cast<int64_t>(random() % 12);
      const int64_t steps = 1 + static_cast<int64_t>(random() % 20);
      const DataStart start = ContinueData(there, Reading(chosen, batch));
      const DataSegment& segment = start.segments.back();
      const auto draws = DrawsOf(segment);
      draws->Begin(FirstWindows(segment));
      for (const data::Draw& draw :
           draws->At((there.step - segment.from_step) * segment.global_batch_size, steps * batch)) {
        read[segment.sources[draw.source].name].push_back(draw.window);
      }
      there = After(start, there.step + steps);
    }
    for (const TextPosition& text : all) {
      const std::vector<int64_t>& windows = read[text.name];
      for (size_t begin = 0; begin < windows.size(); begin += text.windows) {
        const auto end = windows.begin() + std::min(windows.size(), begin + text.windows);
        std::vector<int64_t> epoch(windows.begin() + begin, end);
        std::sort(epoch.begin(), epoch.end());
        EXPECT_EQ(std::unique(epoch.begin(), epoch.end()), epoch.end()) << text.name;
      }
    }
  }
}

}  // namespace
}  // namespace tandem::trainer
