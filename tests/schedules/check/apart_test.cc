// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "schedules/passes/passes.h"
#include "tests/schedules/check/edited_stage.h"

namespace tandem::schedules {
namespace {

using ::testing::HasSubstr;
using ::testing::StartsWith;

TEST(ApartTest, BuffersThatAreAliveTogetherShareNoBytes) {
  EditedStage edited(SmallDecoder(1));
  Program& train = edited.stage.train;
  train.buffers[edited.BufferNamed(train, "layers.0.attention.hidden mb 0")].address =
      train.buffers[edited.BufferNamed(train, "embedding.hidden mb 0")].address;
  EXPECT_THAT(edited.Check(), StartsWith("apart: train: "));
  EXPECT_THAT(edited.Check(),
              HasSubstr("embedding.hidden mb 0 and layers.0.attention.hidden mb 0 share bytes, and "));
  EXPECT_THAT(edited.Check(),
              HasSubstr("(forward layers.0.attention mb 0), which uses the second, comes before "));
  EXPECT_THAT(edited.Check(), HasSubstr(", which still uses the first"));
}

TEST(ApartTest, BuffersMayNotOverlapByTheirEndsEither) {
  EditedStage edited(SmallDecoder(1));
  Program& train = edited.stage.train;
  const Buffer& first = train.buffers[edited.BufferNamed(train, "embedding.hidden mb 0")];
  Buffer& second = train.buffers[edited.BufferNamed(train, "layers.0.attention.hidden mb 0")];
  second.address = first.address + ExtentOf(first) - second.alignment;
  EXPECT_THAT(edited.Check(),
              StartsWith("apart: train: embedding.hidden mb 0 and layers.0.attention.hidden mb 0 share "));
}

TEST(ApartTest, WhatIsPersistentSharesNothing) {
  EditedStage edited(SmallDecoder(1));
  for (Program* program :
       {&edited.stage.train, &edited.stage.begin, &edited.stage.update, &edited.stage.validate}) {
    program->buffers[1].address = program->buffers[0].address;
  }
  EXPECT_THAT(edited.Check(), StartsWith("apart: train: "));
  EXPECT_THAT(edited.Check(), HasSubstr("share bytes, and one of them is persistent"));
}

// With the least memory some waits are there only so that a buffer can have the place of another.
TEST(ApartTest, BuffersShareOnlyByAMemoryWait) {
  EditedStage edited(SmallDecoder(2));
  for (const Program* program : edited.stage.All()) {
    edited.options.budget_bytes = std::max(edited.options.budget_bytes, BudgetsOf(*program).least);
  }
  edited.stage = BuildStage(edited.outline, edited.options).value();
  ASSERT_EQ(edited.Check(), "");
  int memory_waits = 0;
  int needed = 0;
  const StagePrograms whole = edited.stage;
  for (size_t i = 0; i < whole.train.instructions.size(); ++i) {
    for (size_t k = 0; k < whole.train.instructions[i].waits.size(); ++k) {
      if (whole.train.instructions[i].waits[k].frees == 0) {
        continue;
      }
      ++memory_waits;
      edited.stage = whole;
      std::vector<Wait>& waits = edited.stage.train.instructions[i].waits;
      waits.erase(waits.begin() + static_cast<int64_t>(k));
      if (const std::string words = edited.Check(); !words.empty()) {
        ++needed;
        EXPECT_THAT(words, StartsWith("apart: train: "));
        EXPECT_THAT(words, HasSubstr(" does not wait for "));
      }
    }
  }
  EXPECT_GT(memory_waits, 3);
  EXPECT_GT(needed, 1);
}

}  // namespace
}  // namespace tandem::schedules
