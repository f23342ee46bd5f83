// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include "schedules/passes/live_locals.h"
#include "tests/schedules/simulate/hand_program.h"

namespace tandem::schedules {
namespace {

// Buffers of 2000 bytes take 2048, that of 600 bytes 768.
TEST(AliveTest, CountsWhatTheInstructionDoesNotKnowToHaveEnded) {
  Program program = HandProgram();
  // Instruction 4 opens the third gathered buffer. It waits for 3, which knows that 1 has ended; so the first
  // is not alive for it, the second may be: 3 reads it, and has ended, so it is not.
  EXPECT_EQ(MostBytesAlive(program), 2048 + 2048 + 768)
      << "at 2, for which the forward still reads the first";
  program.instructions[4].waits = {};
  program.instructions[5].waits = {{4}, {3}};
  EXPECT_EQ(MostBytesAlive(program), 3 * 2048 + 768) << "the gather stream no longer knows of compute";
}

TEST(AliveTest, WhatIsAccessedLaterIsAlive) {
  Program program = HandProgram();
  program.instructions[4].operands = {};
  program.instructions[5].operands = {{.buffer = 2}};  // the first gathered buffer again
  EXPECT_EQ(MostBytesAlive(program), 2 * 2048 + 768);
}

TEST(AliveTest, AHostWaitIsKnownToAllThatIsIssuedAfterIt) {
  Program program = HandProgram();
  program.instructions[4].waits = {};
  program.instructions.insert(program.instructions.begin() + 4,
                              {.opcode = Opcode::kHostWait, .target = 0, .stream = kCompute});
  program.instructions[6].waits = {{5}};
  EXPECT_EQ(MostBytesAlive(program), 2048 + 2048 + 768);
}

TEST(AliveTest, PersistentAndHostMemoryDoNotCount) {
  Program program = HandProgram();
  for (Buffer& buffer : program.buffers) {
    buffer.life = Life::kPersistent;
  }
  EXPECT_EQ(MostBytesAlive(program), 0);
  program.buffers[2].life = Life::kLocal;
  program.buffers[2].kind = BufferKind::kSizes;
  EXPECT_EQ(MostBytesAlive(program), 0);
}

}  // namespace
}  // namespace tandem::schedules
