// SPDX-License-Identifier: Apache-2.0
#include "trainer/start_weights.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "absl/strings/str_cat.h"
#include "platform/files.h"
#include "platform/sha256.h"
#include "tests/data/prepared_folder.h"
#include "tests/platform/temporary_folder.h"

namespace tandem::trainer {
namespace {

using ::testing::HasSubstr;

// Text of a tokenizer whose documents end with id 3, and a model beside it.
class StartTokenizerTest : public testing::Test {
 protected:
  StartTokenizerTest() {
    train_ = data::WriteDataset(folder_, "tokens", {{data::Document(20, 1)}});
    std::string description = data::DescriptionOf({{data::Document(20, 1)}}, true);
    description.replace(description.find(std::string(64, 'a')), 64, platform::Sha256Of("a tokenizer"));
    folder_.Write("tokens/dataset.json", description);
    folder_.Write("model/tokenizer.json", "a tokenizer");
    folder_.Write("model/config.json", R"({"eos_token_id": [2, 3]})");
  }

  std::string DifferenceFrom(const std::string& text, const std::string& weights) const {
    return TokenizerDifference(platform::SystemFiles(), {.field = "data.sources[1].path", .path = text},
                               folder_.path() + weights);
  }

  std::string Difference() const { return DifferenceFrom(train_, "/model"); }

  const platform::TemporaryFolder folder_;
  std::string train_;
};

TEST_F(StartTokenizerTest, TheTokenizerOfTheModelIsNoDifference) { EXPECT_EQ(Difference(), ""); }

TEST_F(StartTokenizerTest, AnotherTokenizerIsNamed) {
  folder_.Write("model/tokenizer.json", "another");
  EXPECT_THAT(Difference(),
              HasSubstr("data.sources[1].path was prepared with /t, whose tokenizer.json is not that of"));
}

TEST_F(StartTokenizerTest, AnotherEndOfTextIsNamed) {
  folder_.Write("model/config.json", R"({"eos_token_id": 2})");
  EXPECT_THAT(Difference(), HasSubstr("end with id 3, and eos_token_id of checkpoint.start_from is 2"));
}

TEST_F(StartTokenizerTest, WhatCannotBeKnownIsNoDifference) {
  for (const char* const config :
       {"{}", "{", "[]", R"({"eos_token_id": null})", R"({"eos_token_id": "x"})", ""}) {
    folder_.Write("model/config.json", config);
    EXPECT_EQ(Difference(), "") << config;
  }
  EXPECT_EQ(DifferenceFrom(folder_.path() + "/absent", ""), "");
  EXPECT_EQ(DifferenceFrom(train_, "/absent"), "");
}

}  // namespace
}  // namespace tandem::trainer
