// SPDX-License-Identifier: Apache-2.0
// What Node::Bind refuses.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <set>
#include <stdexcept>
#include <string>
#include <vector>

#include "tests/model/bound_decoder.h"
#include "tests/model/shapes.h"

namespace tandem::model {
namespace {

using test::BoundDecoder;
using test::Config;
using test::kSeed;

TEST(BindPrecisionTest, AMatrixOfAnotherTypeIsRefused) {
  const DecoderConfig config = Config(8, 12, 1, 1, 1, 8, 5, /*tied=*/true);
  Precision precision(ComputeType::kBf16);
  precision.units["head"] = Precision(ComputeType::kFp32).common;  // and not the embedding's
  BoundDecoder run(config, {1, 4}, precision, kSeed);
  try {
    run.Bind(3, Pass::kForward);
    FAIL() << "it was bound";
  } catch (const std::logic_error& error) {
    EXPECT_STREQ(error.what(), "head forward: part embedding is of bf16, and the node takes it in fp32");
  }
}

class BindRefusalTest : public testing::Test {
 protected:
  using Operands = std::vector<OperandMemory>;

  // The message with which binding is refused.
  std::string Refusal(
      int node, Pass pass, const std::set<std::string>& recompute = {},
      const std::function<void(Operands&)>& change = [](Operands&) {}) {
    try {
      run_.Bind(node, pass, recompute, change);
    } catch (const std::logic_error& error) {
      return error.what();
    }
    return "nothing is refused";
  }

  BoundDecoder run_{Config(8, 8, 1, 1, 1, 8, 8, false), {1, 4}, ComputeType::kFp32, kSeed};
  static constexpr int kEmbedding = 0;
  static constexpr int kAttention = 1;
  static constexpr int kMlp = 2;
  static constexpr int kHead = 3;
};

TEST_F(BindRefusalTest, PassesThatANodeDoesNotHave) {
  for (const int node : {kEmbedding, kHead}) {
    EXPECT_THAT(Refusal(node, Pass::kBackwardWeight), testing::HasSubstr("no such pass"));
  }
  EXPECT_EQ(Refusal(kHead, Pass::kRecompute), "head recompute: these nodes have no such pass");
}

TEST_F(BindRefusalTest, ARecomputeWithoutSourcesOfItsOutputs) {
  EXPECT_EQ(Refusal(kMlp, Pass::kRecompute, {"layers.0.mlp.hidden"}),
            "mlp recompute: hidden is computed from gate_up, which must be recomputed with it");
  EXPECT_THAT(Refusal(kAttention, Pass::kRecompute, {"layers.0.attention.context", "layers.0.attention.lse"}),
              testing::HasSubstr("context is computed from qkv"));
}

TEST_F(BindRefusalTest, OperandsThatAreNotTheDeclarations) {
  EXPECT_THAT(Refusal(kMlp, Pass::kForward, {}, [](Operands& operands) { operands.pop_back(); }),
              testing::HasSubstr("only 4 operands"));
  EXPECT_THAT(Refusal(kMlp, Pass::kForward, {}, [](Operands& operands) { operands.push_back({}); }),
              testing::HasSubstr("6 operands, not 5"));
  EXPECT_THAT(Refusal(kMlp, Pass::kForward, {}, [](Operands& operands) { operands[2].bytes -= 1; }),
              testing::HasSubstr("gate_up takes 256 bytes"));
  EXPECT_THAT(Refusal(kMlp, Pass::kForward, {}, [](Operands& operands) { operands[0].begin = nullptr; }),
              testing::HasSubstr("x takes 128 bytes"));
  EXPECT_THAT(Refusal(kMlp, Pass::kForward, {}, [](Operands& operands) { operands[4].bytes -= 1; }),
              testing::HasSubstr("are not in its memory"));
}

TEST_F(BindRefusalTest, ABlockWithAGap) {
  EXPECT_EQ(Refusal(kMlp, Pass::kForward, {}, [](Operands& operands) { operands[3].parameters[2] += 4; }),
            "mlp forward: up does not follow gate without a gap");
  EXPECT_THAT(
      Refusal(kMlp, Pass::kForward, {}, [](Operands& operands) { operands[3].parameters.pop_back(); }),
      testing::HasSubstr("part mlp has 4 parameters, its memory 3"));
}

}  // namespace
}  // namespace tandem::model
