// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <vector>

#include "absl/strings/str_cat.h"
#include "jobspec/jobspec.h"
#include "tests/data/prepared_folder.h"
#include "tests/jobspec/bad_spec.h"
#include "tests/platform/temporary_folder.h"

namespace tandem::jobspec {
namespace {

using ::testing::HasSubstr;

// What ranks would refuse is refused when the job is submitted, of windows of 17 tokens.
class CheckTokenFilesTest : public ::testing::Test {
 protected:
  CheckTokenFilesTest() {
    spec_ = ReadText(kGoodSpec, "").spec;
    spec_.mutable_model()->set_vocab_size(1000);
  }

  std::string Check() const { return ToText(CheckFiles(Resolve(spec_))); }

  static std::vector<data::Document> Documents(const std::vector<int64_t>& lengths, int64_t token) {
    std::vector<data::Document> documents;
    for (const int64_t length : lengths) {
      documents.emplace_back(length, token);
    }
    return documents;
  }

  // A folder of documents of so many tokens.
  std::string Write(const std::string& name, const std::vector<int64_t>& lengths, int64_t token = 1) const {
    return data::WriteDataset(folder_, name, {Documents(lengths, token)});
  }

  void SetSources(const std::vector<std::string>& paths) {
    spec_.mutable_data()->clear_train();
    spec_.mutable_data()->clear_sources();
    for (const std::string& path : paths) {
      v1::DataSource& source = *spec_.mutable_data()->add_sources();
      source.set_path(path);
      source.set_name(absl::StrCat("text-", spec_.data().sources_size()));
    }
  }

  const platform::TemporaryFolder folder_;
  v1::JobSpec spec_;
};

TEST_F(CheckTokenFilesTest, MasksNeedRowsThatSayTargets) {
  const std::string path = Write("set", {600, 350, 50});
  data::WriteMasks(folder_, "set", {Documents({600, 350, 50}, 1)}, {std::vector<bool>(1000, true)});
  spec_.mutable_data()->set_train(path);
  EXPECT_EQ(Check(), "");
  spec_.mutable_training()->set_validate_every_steps(0);
  const std::string refusal =
      "it says which tokens count as targets, and the rows of this job do not: set training: "
      "{validate_every_steps: more than 0} beside text that is held out, or data: {count_first_token: false}";
  EXPECT_THAT(Check(), HasSubstr("data.train: "));
  EXPECT_THAT(Check(), HasSubstr(refusal));
  spec_.mutable_data()->set_validation_fraction(0);
  EXPECT_THAT(Check(), HasSubstr(refusal));
  spec_.mutable_data()->set_count_first_token(false);
  EXPECT_EQ(Check(), "");
}

TEST_F(CheckTokenFilesTest, DepthsOfMultiTokenPredictionTakeNoMasks) {
  const std::string path = Write("set", {600, 350, 50});
  data::WriteMasks(folder_, "set", {Documents({600, 350, 50}, 1)}, {std::vector<bool>(1000, true)});
  spec_.mutable_data()->set_train(path);
  v1::Model& model = *spec_.mutable_model();
  model.clear_preset();
  model.set_model_type("hybrid");
  model.set_hidden_size(64);
  model.set_hybrid_pattern("MM");
  EXPECT_EQ(Check(), "");
  model.set_hybrid_pattern("MM/M");
  EXPECT_THAT(Check(), HasSubstr("data.train: "));
  EXPECT_THAT(Check(), HasSubstr("not built yet: multi-token prediction of some targets alone"));
}

TEST_F(CheckTokenFilesTest, SharedFileIsRefusedWithHeldOutEnds) {
  const std::string first = Write("first", {500, 450, 50});
  const std::string second = Write("second", {500, 450, 50}, 2);
  for (const char* const suffix : {".bin", ".idx"}) {
    std::filesystem::create_hard_link(first + "/tokens-0" + suffix, second + "/tokens-1" + suffix);
  }
  folder_.Write("second/dataset.json",
                data::DescriptionOf({Documents({500, 450, 50}, 2), Documents({500, 450, 50}, 1)}, true));
  SetSources({first, second});
  EXPECT_THAT(Check(),
              HasSubstr("/second/tokens-1.bin is also a file of data.sources[0].path, and what is held "
                        "out of the one would be trained on through the other: name other files"));
  SetSources({first, first});
  EXPECT_EQ(Check(), "") << "the same end is held out of both";
  SetSources({first, second});
  spec_.mutable_training()->set_validate_every_steps(0);
  EXPECT_EQ(Check(), "");
}

TEST_F(CheckTokenFilesTest, SharedFileOfBytesIsRefused) {
  folder_.Write("a/x", std::string(500, 'x'));
  folder_.Write("a/y", std::string(500, 'y'));
  folder_.Write("b/z", std::string(500, 'z'));
  std::filesystem::create_hard_link(folder_.path() + "/a/x", folder_.path() + "/b/x");
  SetSources({folder_.path() + "/a", folder_.path() + "/b"});
  EXPECT_THAT(Check(), HasSubstr("/b/x is also a file of data.sources[0].path, and what is held out"));
  spec_.mutable_training()->set_validate_every_steps(0);
  EXPECT_EQ(Check(), "");
}

TEST_F(CheckTokenFilesTest, CopiedTokensAreNotValidatedOn) {
  spec_.mutable_data()->set_train(Write("set", {600, 400}));
  spec_.mutable_data()->set_validation(Write("copy", {600, 400}));
  EXPECT_THAT(Check(),
              HasSubstr(absl::StrCat(folder_.path(), "/copy/tokens-0.bin has the same tokens as ",
                                     "data.train, ", folder_.path(), "/set/tokens-0.bin: name other")));
  spec_.mutable_data()->set_validation(Write("other", {600, 400}, 2));
  EXPECT_EQ(Check(), "");
}

TEST_F(CheckTokenFilesTest, HeldOutTokensHaveAWindow) {
  spec_.mutable_data()->set_train(Write("set", {300, 684, 16}));
  EXPECT_THAT(Check(),
              HasSubstr("at least 17 tokens (sequence_length + 1) to hold out; validation_fraction 0.05 "
                        "holds out 16 tokens of whole documents: name other text"));
  spec_.mutable_training()->set_validate_every_steps(0);
  EXPECT_EQ(Check(), "");
  spec_.mutable_training()->clear_validate_every_steps();
  spec_.mutable_data()->set_train(Write("longer", {300, 683, 17}));
  EXPECT_EQ(Check(), "");
  spec_.mutable_data()->set_train(Write("few", {10, 30}));
  spec_.mutable_data()->set_validation_fraction(0.5);
  EXPECT_THAT(Check(), HasSubstr("to hold out; validation_fraction 0.5 holds out 0 tokens"));
  spec_.mutable_data()->set_train(Write("end", {16, 24}));
  spec_.mutable_data()->set_validation_fraction(0.5);
  EXPECT_THAT(Check(), HasSubstr("to hold out; "));
}

}  // namespace
}  // namespace tandem::jobspec
