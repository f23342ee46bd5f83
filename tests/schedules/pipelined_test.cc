// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "absl/strings/str_cat.h"
#include "schedules/build/schedule.h"
#include "tests/schedules/divided_job.h"
#include "tests/schedules/test_outlines.h"

namespace tandem::schedules {
namespace {

DividedJob Job(int num_stages, int num_chunks, int num_microbatches) {
  return DenseStages(num_stages, 1, num_microbatches, "zero3", /*ranks=*/2, num_chunks);
}

// "F0.1 B1.0": forward of chunk 0 for microbatch 1, backward of chunk 1 for microbatch 0; "r" and "s" before
// a number: a receive and a send.
std::string Order(const Outline& outline, const PassList& passes) {
  std::string text;
  std::string last;
  for (const NodePass& pass : passes) {
    std::string word;
    if (pass.opcode == Opcode::kSend || pass.opcode == Opcode::kReceive) {
      word =
          absl::StrCat(pass.opcode == Opcode::kSend ? "s" : "r", pass.gradient ? "'" : "", pass.microbatch);
    } else {
      word = absl::StrCat(pass.opcode == Opcode::kForward ? "F" : "B", outline.nodes[pass.target].chunk, ".",
                          pass.microbatch);
    }
    if (word != last) {
      absl::StrAppend(&text, text.empty() ? "" : " ", word);
    }
    last = word;
  }
  return text;
}

TEST(PipelinedTest, OneForwardOneBackwardAfterWarmUp) {
  const DividedJob job = Job(2, 1, 3);
  const Outline& first = job.stages[0].outline;
  const Outline& last = job.stages[1].outline;
  EXPECT_EQ(Order(first, Pipelined(first, 2, 3)), "F0.0 s0 r'0 F0.1 s1 B0.0 r'1 F0.2 s2 r'2 B0.1 B0.2")
      << "the embedding's gradient goes nowhere";
  EXPECT_EQ(Order(last, Pipelined(last, 2, 3)), "r0 F0.0 r1 B0.0 s'0 F0.1 r2 B0.1 s'1 F0.2 B0.2 s'2");
}

TEST(PipelinedTest, ChunksOfARankInterleave) {
  const DividedJob job = Job(2, 2, 2);
  const Outline& first = job.stages[0].outline;
  const Outline& last = job.stages[1].outline;
  EXPECT_EQ(Order(first, Pipelined(first, 2, 2)),
            "F0.0 s0 r0 F0.1 s1 r1 F1.0 s0 r'0 F1.1 s1 r'1 B1.0 s'0 r'0 B1.1 s'1 r'1 B0.0 B0.1");
  EXPECT_EQ(Order(last, Pipelined(last, 2, 2)),
            "r0 r1 F0.0 s0 r0 F0.1 s1 F1.0 r1 B1.0 s'0 F1.1 r'0 B1.1 s'1 r'1 B0.0 s'0 B0.1 s'1");
}

TEST(PipelinedTest, AnyStagesChunksAndMicrobatchesAreProven) {
  for (const int num_stages : {2, 3, 4}) {
    for (const int num_chunks : {1, 2, 3}) {
      for (const int num_microbatches : {1, 2, 3, 5, 8}) {
        SCOPED_TRACE(absl::StrCat(num_stages, " stages, ", num_chunks, " chunks, ", num_microbatches,
                                  " microbatches"));
        EXPECT_EQ(Job(num_stages, num_chunks, num_microbatches).Check(), "");
      }
    }
  }
}

// Where the last group lacks microbatches and had no places for them, (4, 3, 5), (4, 3, 9) and (5, 2, 7)
// would stand still.
TEST(PipelinedTest, StagesFinishTogetherWithAPartialGroup) {
  for (int num_stages = 2; num_stages <= 5; ++num_stages) {
    for (int num_chunks = 1; num_chunks <= 3; ++num_chunks) {
      for (int num_microbatches = 1; num_microbatches <= 13; ++num_microbatches) {
        EXPECT_EQ(Job(num_stages, num_chunks, num_microbatches).CheckTogether(), "")
            << num_stages << " stages, " << num_chunks << " chunks, " << num_microbatches << " microbatches";
      }
    }
  }
}

}  // namespace
}  // namespace tandem::schedules
