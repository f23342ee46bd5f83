#include "schedules/program/text.h"

#include <gtest/gtest.h>

#include <set>

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

TEST(StrategyTest, AnUnknownNameIsRefusedWithThoseThatThereAre) {
  EXPECT_EQ(StrategyOf("zero4").status().message(),
            "no strategy \"zero4\"; there are replicate, zero1, zero2, zero3, hsdp, hfsdp");
}

TEST(BufferTest, TheElementsOfARingDoNotShareAnAlignedBlock) {
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

}  // namespace
}  // namespace tandem::schedules
