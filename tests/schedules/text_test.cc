// SPDX-License-Identifier: Apache-2.0
#include "schedules/program/text.h"

#include <gtest/gtest.h>

#include <set>

#include "schedules/build/program_builder.h"
#include "tests/schedules/test_outlines.h"

namespace tandem::schedules {
namespace {

TEST(OpcodeTest, EveryOpcodeHasANameOfItsOwn) {
  std::set<std::string> names;
  for (int i = 0; i < kNumOpcodes; ++i) {
    names.insert(ToText(static_cast<Opcode>(i)));
  }
  EXPECT_EQ(names.size(), kNumOpcodes);
}

TEST(ShardingStrategyTest, UnknownNameIsRefusedWithAllNames) {
  EXPECT_EQ(StrategyOf("zero4").status().message(),
            "no strategy \"zero4\"; there are replicate, zero1, zero2, zero3, hsdp, hfsdp");
}

TEST(BufferTest, RingElementsShareNoAlignedBlock) {
  const Buffer ring{.kind = BufferKind::kOutcome, .life = Life::kRing, .bytes = {300, 300}};
  EXPECT_EQ(RingStride(ring), 512);
  EXPECT_EQ(ExtentOf(ring), 812);
}

TEST(TextTest, ShortFormNamesWhatAnInstructionDoes) {
  const Outline outline = SmallDecoder();
  EXPECT_EQ(ToText(Instruction{.opcode = Opcode::kForward, .target = 1, .microbatch = 0}, outline),
            "forward layers.0.attention mb 0");
  EXPECT_EQ(ToText(Instruction{.opcode = Opcode::kUnshard, .target = 99}, outline), "unshard unit 99?");
  EXPECT_EQ(ToText(Instruction{.opcode = Opcode::kGradientNorm}, outline), "gradient-norm");
}

// Whatever a program holds is in its text, so a digest of the text is one of the program.
TEST(TextTest, EveryFieldOfAProgramShows) {
  const Outline outline = MoeDecoder(1);
  const Program program = BuildStage(outline, OptionsFor(outline, "zero3", 2, 4)).value().train;
  const std::string text = ToText(program, outline);
  const auto expect_other = [&](const char* what, auto change) {
    for (size_t i = 0; i < program.instructions.size(); ++i) {
      Program changed = program;
      if (change(changed.instructions[i])) {
        EXPECT_TRUE(ToText(changed, outline) != text) << what << " of instruction " << i;
      }
    }
  };
  expect_other("microbatch", [](Instruction& in) { return in.microbatch += 1, true; });
  expect_other("target",
               [](Instruction& in) { return InfoOf(in.opcode).target != TargetKind::kNone && ++in.target; });
  expect_other("stream", [](Instruction& in) { return in.stream = in.stream == 0 ? 1 : 0, true; });
  expect_other("communicator",
               [](Instruction& in) { return in.communicator = in.communicator == 2 ? 3 : 2, true; });
  expect_other("wait", [](Instruction& in) { return in.waits.push_back({0}), true; });
  expect_other("frees", [](Instruction& in) { return !in.waits.empty() && (in.waits[0].frees += 8); });
  expect_other("missing operand", [](Instruction& in) { return in.operands.pop_back(), true; });
  expect_other("buffer", [](Instruction& in) { return in.operands.back().buffer += 1, true; });
  expect_other("part", [](Instruction& in) { return in.operands.front().part += 1, true; });
  expect_other("former",
               [](Instruction& in) { return in.operands[0].former = !in.operands[0].former, true; });
  expect_other("mode", [](Instruction& in) {
    Mode& mode = in.operands[0].mode;
    return mode = mode == Mode::kAdds ? Mode::kReads : Mode::kAdds, true;
  });
  for (size_t b = 0; b < program.buffers.size(); ++b) {
    const auto expect_other_buffer = [&](const char* what, auto change) {
      Program changed = program;
      change(changed.buffers[b]);
      EXPECT_TRUE(ToText(changed, outline) != text) << what << " of " << program.buffers[b].name;
    };
    expect_other_buffer("address", [](Buffer& buffer) { buffer.address += 256; });
    expect_other_buffer("bytes", [](Buffer& buffer) { buffer.bytes.bound += 1; });
    expect_other_buffer("expectation", [](Buffer& buffer) { buffer.bytes.expected += 1; });
    expect_other_buffer("alignment", [](Buffer& buffer) { buffer.alignment = 512; });
    expect_other_buffer("parts", [](Buffer& buffer) { buffer.parts.push_back({"more", 0, 1}); });
    expect_other_buffer("life", [](Buffer& buffer) {
      buffer.life = buffer.life == Life::kLocal ? Life::kPersistent : Life::kLocal;
    });
  }
}

}  // namespace
}  // namespace tandem::schedules
