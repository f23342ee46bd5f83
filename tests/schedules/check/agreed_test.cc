// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <string>

#include "schedules/check/rules.h"
#include "schedules/check/together.h"
#include "tests/schedules/check/edited_stage.h"
#include "tests/schedules/divided_job.h"

namespace tandem::schedules {
namespace {

using ::testing::HasSubstr;
using ::testing::StartsWith;

TEST(AgreedTest, UnitIsReducedOverItsOwnGroup) {
  EditedStage edited(MoeDecoder(1));
  Program& train = edited.stage.train;
  // The gradient of the experts over the dense ranks, on the same stream.
  edited.Find(train, "reduce layers.0.experts mb 0").communicator =
      edited.Find(train, "reduce layers.0 mb 0").communicator;
  EXPECT_THAT(edited.Check(), StartsWith("agreed: train: "));
  EXPECT_THAT(edited.Check(), HasSubstr("uses communicator dp_cp reduce instead of expt_dp for reduce"));
}

TEST(AgreedTest, OnlyExchangesHaveACommunicator) {
  EditedStage edited(SmallDecoder(1));
  edited.Find(edited.stage.train, "gradient-norm").communicator = -1;
  EXPECT_THAT(edited.Check(), StartsWith("agreed: train: "));
  EXPECT_THAT(edited.Check(), HasSubstr("(gradient-norm) has no communicator, and exchanges data"));
}

TEST(AgreedTest, NormNeedsACommunicatorForNorms) {
  EditedStage edited(SmallDecoder(1));
  Program& train = edited.stage.train;
  edited.Find(train, "gradient-norm").communicator = edited.Find(train, "reduce layers.0 mb 0").communicator;
  EXPECT_THAT(edited.Check(), StartsWith("agreed: train: "));
  EXPECT_THAT(edited.Check(), HasSubstr("uses communicator dp_cp reduce instead of one for norm"));
}

TEST(AgreedTest, UnitMeetsReplicasOverItsOuterGroup) {
  EditedStage edited(MoeDecoder(1), "hsdp");
  Program& train = edited.stage.train;
  edited.Find(train, "reduce-outer layers.0.experts").communicator =
      edited.Find(train, "reduce-outer layers.0").communicator;
  EXPECT_THAT(edited.Check(), StartsWith("agreed: train: "));
  EXPECT_THAT(edited.Check(),
              HasSubstr("uses communicator inter_dist_opt reduce instead of inter_expt_dp for it"));
}

TEST(AgreedTest, MoreStreamsThanDeviceQueuesAreRefused) {
  EditedStage edited(SmallDecoder(1));
  Program& train = edited.stage.train;
  while (train.streams.size() <= size_t{kMostStreams}) {
    train.streams.push_back({"stream " + std::to_string(train.streams.size())});
  }
  EXPECT_EQ(edited.Check(), "agreed: train: has 33 streams; a device runs 32 beside each other");
}

TEST(AgreedTest, TooManyCommunicatorsAreListedByName) {
  EditedStage edited(SmallDecoder(1));
  Program& train = edited.stage.train;
  while (train.communicators.size() <= size_t{kMostCommunicators}) {
    train.communicators.push_back({"pp", "link " + std::to_string(train.communicators.size())});
  }
  EXPECT_THAT(edited.Check(), StartsWith("agreed: train: has 25 communicators (dp_cp_ag gather, "));
  EXPECT_THAT(edited.Check(), HasSubstr("pp link 24); a rank has 24 at most"));
}

class StagesAgreeTest : public ::testing::Test {
 protected:
  std::string Check() const { return job_.CheckTogether(); }

  // Of a stage's training program, by what it does.
  int IndexOf(int stage, Opcode opcode, int microbatch) const {
    const std::vector<Instruction>& instructions = stages_[stage].train.instructions;
    for (int i = 0; i < static_cast<int>(instructions.size()); ++i) {
      if (instructions[i].opcode == opcode && (microbatch < 0 || instructions[i].microbatch == microbatch)) {
        return i;
      }
    }
    ADD_FAILURE() << "no " << ToText(opcode) << " mb " << microbatch;
    return 0;
  }

  DividedJob job_ = DenseStages(2, 1, 4);
  std::vector<StagePrograms>& stages_ = job_.programs;
};

TEST_F(StagesAgreeTest, OneForwardOneBackwardGetsToTheEnd) {
  EXPECT_EQ(Check(), "");
  EXPECT_EQ(job_.Check(), "");
}

TEST_F(StagesAgreeTest, MismatchedSendAndReceiveAreNamed) {
  std::swap(stages_[0].train.instructions[IndexOf(0, Opcode::kSend, 0)].microbatch,
            stages_[0].train.instructions[IndexOf(0, Opcode::kSend, 1)].microbatch);
  EXPECT_THAT(Check(), StartsWith("agreed: train: stage 0: "));
  EXPECT_THAT(Check(), HasSubstr("(send layers.0.mlp.hidden mb 1) meets stage 1: "));
  EXPECT_THAT(Check(), HasSubstr("(receive layers.0.mlp.hidden mb 0), which does not carry the same"));
}

TEST_F(StagesAgreeTest, SendAndReceiveHaveEqualBytes) {
  Program& train = stages_[1].train;
  const Instruction& receive = train.instructions[IndexOf(1, Opcode::kReceive, 0)];
  train.buffers[receive.operands.front().buffer].bytes.bound += 256;
  EXPECT_THAT(Check(), StartsWith("agreed: train: stage 0: "));
  EXPECT_THAT(Check(), HasSubstr("(receive layers.0.mlp.hidden mb 0), which does not carry the same"));
}

TEST_F(StagesAgreeTest, AgreedNamesWhereAllStandStill) {
  // Stage 1 wants the gradient norm before it has sent its last gradient.
  Program& train = stages_[1].train;
  const int norm = IndexOf(1, Opcode::kGradientNorm, -1);
  const Instruction instruction = train.instructions[norm];
  EditedStage::Remove(train, norm);
  const int send = IndexOf(1, Opcode::kSend, 3);
  EditedStage::Insert(train, send, instruction);
  train.instructions[send + 1].waits.push_back({send});
  EXPECT_THAT(Check(), StartsWith("agreed: train: the stages wait for each other forever at stage 0: "));
  EXPECT_THAT(Check(), HasSubstr("(receive layers.0.mlp.hidden mb 3); stage 1: "));
  EXPECT_THAT(Check(), HasSubstr("(gradient-norm)"));
}

// The first stage issues all its forwards before it takes a gradient. Two queues hold what is on its way:
// that of its sends, and that of the other stage's gradients.
TEST_F(StagesAgreeTest, FullStreamHoldsTheIssuingThread) {
  const auto check = [&](int num_microbatches) {
    job_.options.num_microbatches = num_microbatches;
    job_.options.budget_bytes = int64_t{1} << 40;  // no memory waits
    for (int s = 0; s < 2; ++s) {
      PassList passes = Pipelined(job_.stages[s].outline, 2, num_microbatches);
      if (s == 0) {
        std::stable_partition(passes.begin(), passes.end(), [](const NodePass& pass) {
          return !pass.gradient && pass.opcode != Opcode::kBackwardInput &&
                 pass.opcode != Opcode::kBackwardWeight;
        });
      }
      job_.Build(s, passes);
    }
    return Check();
  };
  EXPECT_EQ(check(2 * kAhead), "");
  EXPECT_THAT(check(2 * kAhead + 4), HasSubstr("the stages wait for each other forever at stage 0: "));
}

TEST_F(StagesAgreeTest, AgreedNamesAReceiveThatNothingMeets) {
  EditedStage::Remove(stages_[0].train, IndexOf(0, Opcode::kSend, 3));
  EXPECT_THAT(Check(), StartsWith("agreed: train: the stages wait for each other forever at "));
}

}  // namespace
}  // namespace tandem::schedules
