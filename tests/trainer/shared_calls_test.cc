// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

#include "tests/trainer/executor_fixture.h"
#include "trainer/binder.h"
#include "trainer/bound_program.h"
#include "trainer/memberships.h"

namespace tandem::trainer {
namespace {

// A job's train program with its calls.
class BoundJob : private RankOnPlan {
 public:
  explicit BoundJob(int microbatches)
      : RankOnPlan(parity::MakeJob({.microbatches_per_rank = microbatches}), /*fill_with_nan=*/false),
        binder_(plan_, nodes_, units_, memory_, *backend_, /*fill_with_nan=*/false, [](int, int) {}),
        calls_(binder_, memory_),
        bound_(program(), [this](const schedules::Instruction& instruction, int parity) {
          return calls_.Get(program(), instruction, parity,
                            instruction.communicator < 0 ? nullptr : &(*communicators_)[0]);
        }) {}

  const schedules::Program& program() const { return plan_.stage.train; }
  const std::vector<BoundInstruction>& instructions() const { return bound_.instructions(); }
  size_t num_calls() const { return calls_.num_calls(); }

  // What the instruction touches in runs of that parity.
  std::vector<char*> AddressesOf(const schedules::Instruction& instruction, int parity) const {
    std::vector<char*> addresses;
    for (const schedules::Operand& operand : instruction.operands) {
      addresses.push_back(memory_.At(program(), operand, parity).begin);
    }
    return addresses;
  }

 private:
  const Binder binder_;
  SharedCalls calls_;
  const BoundProgram bound_;
};

TEST(SharedCallsTest, SameWorkOnSameMemorySharesACall) {
  const BoundJob job(8);
  for (const BoundInstruction& a : job.instructions()) {
    for (const BoundInstruction& b : job.instructions()) {
      for (const int parity : {0, 1}) {
        if (a.calls[0] != b.calls[parity] || (a.index == b.index && parity == 0)) {
          continue;
        }
        EXPECT_EQ(a.instruction->opcode, b.instruction->opcode);
        EXPECT_EQ(a.instruction->target, b.instruction->target);
        EXPECT_EQ(a.instruction->stream, b.instruction->stream);
        EXPECT_EQ(job.AddressesOf(*a.instruction, 0), job.AddressesOf(*b.instruction, parity));
      }
    }
  }
}

TEST(SharedCallsTest, ParitiesShareCallsOutsideRings) {
  const BoundJob job(2);
  int shared = 0;
  for (const BoundInstruction& bound : job.instructions()) {
    const bool touches_ring =
        std::any_of(bound.instruction->operands.begin(), bound.instruction->operands.end(),
                    [&](const schedules::Operand& operand) {
                      return job.program().buffers[operand.buffer].life == schedules::Life::kRing;
                    });
    EXPECT_EQ(bound.calls[0] == bound.calls[1], !touches_ring) << bound.index;
    shared += bound.calls[0] == bound.calls[1] ? 1 : 0;
  }
  EXPECT_GT(shared, 0);
}

// What a call takes is kilobytes of tensors: in a job of a thousand microbatches, gigabytes.
TEST(SharedCallsTest, MicrobatchesShareMostCalls) {
  const BoundJob few(8);
  const BoundJob many(64);
  const size_t more_instructions = many.instructions().size() - few.instructions().size();
  const size_t more_calls = many.num_calls() - few.num_calls();
  EXPECT_LT(more_calls, more_instructions) << "of two an instruction; what touches rings has its own";
}

}  // namespace
}  // namespace tandem::trainer
