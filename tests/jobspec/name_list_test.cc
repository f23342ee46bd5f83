// SPDX-License-Identifier: Apache-2.0
#include "jobspec/name_list.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "jobspec/jobspec.h"
#include "tests/jobspec/bad_spec.h"

namespace tandem::jobspec {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

TEST(NameListTest, NamesStandBetweenCommasWithoutTheirBlanks) {
  EXPECT_THAT(NamesIn("embedding, layers.0 ,head", "none"), ElementsAre("embedding", "layers.0", "head"));
  EXPECT_THAT(NamesIn("a,,b", "none"), ElementsAre("a", "", "b"));
  EXPECT_THAT(NamesIn("none,a", "none"), ElementsAre("none", "a"));
}

TEST(NameListTest, OneWordSaysThatThereAreNone) {
  EXPECT_THAT(NamesIn("none", "none"), IsEmpty());
  EXPECT_THAT(NamesIn(" none ", "none"), IsEmpty());
  EXPECT_THAT(NamesIn("off", "none"), ElementsAre("off"));
}

TEST(NameListTest, StarMatchesAnyText) {
  for (const char* pattern : {"model.norm.weight", "*norm.weight", "model.*", "*", "**", "*norm*",
                              "m*l.n*m.w*t", "model.norm.weight*"}) {
    EXPECT_TRUE(MatchesName(pattern, "model.norm.weight")) << pattern;
  }
  for (const char* pattern :
       {"", "norm.weight", "model.norm", "*norm", "model.norm.weigh?", "*x*", "*weight.*"}) {
    EXPECT_FALSE(MatchesName(pattern, "model.norm.weight")) << pattern;
  }
  EXPECT_TRUE(MatchesName("*ab", "aab"));
  EXPECT_TRUE(MatchesName("", ""));
}

// Matching by trying every end of every star would take longer than the universe.
TEST(NameListTest, ManyStarsTakeNoTime) {
  std::string pattern;
  for (int i = 0; i < 40; ++i) {
    pattern += "*a";
  }
  EXPECT_FALSE(MatchesName(pattern + "*b", std::string(200, 'a')));
}

// What the CLI shows of a job can be submitted again: the default names biases, which most models have not.
TEST(NameListTest, TheDefaultIsAcceptedWhereItIsWritten) {
  const v1::JobSpec spec = ReadText(kGoodSpec, "").spec;
  const v1::JobSpec resolved = Resolve(spec);
  EXPECT_EQ(resolved.training().optimizer().no_weight_decay(), kDefaultNoWeightDecay);
  EXPECT_EQ(ToText(Validate(resolved)), "");
  v1::JobSpec more = resolved;
  more.mutable_training()->mutable_optimizer()->set_no_weight_decay("*.bias,model.embed_tokens.weight");
  EXPECT_EQ(ToText(Validate(more)), "");
}

}  // namespace
}  // namespace tandem::jobspec
