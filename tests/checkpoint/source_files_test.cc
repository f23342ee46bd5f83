// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/source_files.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <string>
#include <vector>

#include "tests/platform/temporary_folder.h"

namespace tandem::checkpoint {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

class SourceFilesTest : public testing::Test {
 protected:
  std::string Path(const std::string& name) const { return folder_.path() + "/" + name; }

  // Names and contents of `source` of the folder "saved".
  std::vector<std::string> Source() const {
    std::vector<std::string> all;
    const auto names = files_.List(Path("saved/source"));
    for (const std::string& name : names.ok() ? *names : std::vector<std::string>()) {
      all.push_back(name + ": " + *files_.Read(Path("saved/source/" + name)));
    }
    return all;
  }

  const platform::TemporaryFolder folder_;
  platform::Files& files_ = platform::SystemFiles();
};

TEST_F(SourceFilesTest, EachFolderGivesWhatItIsOf) {
  for (const char* const folder : {"text", "model", "tokenizer"}) {
    for (const char* const name : {"dataset.json", "config.json", "generation_config.json", "notes.txt"}) {
      folder_.Write(std::string(folder) + "/" + name, folder);
    }
  }
  folder_.Write("tokenizer/tokenizer.json", "tokenizer");
  folder_.Write("tokenizer/chat_template.jinja", "tokenizer");
  folder_.Write("model/tokenizer.json", "model");
  folder_.Write("saved/source/merges.txt", "of an earlier start");
  ASSERT_TRUE(ReplaceSource(files_,
                            {{.path = Path("text"), .field = "", .of_text = true},
                             {.path = Path("model"), .field = "", .of_model = true, .of_text = true},
                             {.path = Path("tokenizer"), .field = ""},
                             {.path = Path("absent"), .field = ""}},
                            Path("saved"))
                  .ok());
  EXPECT_THAT(Source(),
              ElementsAre("chat_template.jinja: tokenizer", "config.json: model", "dataset.json: text",
                          "generation_config.json: model", "tokenizer.json: model"));
}

TEST_F(SourceFilesTest, ConfigOfATokenizerIsNotTheModels) {
  folder_.Write("tokenizer/config.json", "another model's");
  folder_.Write("saved/source/config.json", "of an earlier start");
  ASSERT_TRUE(ReplaceSource(files_, {{.path = Path("tokenizer"), .field = ""}}, Path("saved")).ok());
  EXPECT_THAT(Source(), IsEmpty());
}

TEST_F(SourceFilesTest, UnreadableFilesAreLeftOut) {
  folder_.Write("tokenizer/merges.txt", "merges");
  std::filesystem::create_symlink("/no/such/file", Path("tokenizer/tokenizer.json"));
  std::filesystem::create_directories(Path("tokenizer/vocab.json"));
  std::filesystem::create_directories(Path("saved"));
  const auto left_out = ReplaceSource(
      files_,
      {{.path = Path("tokenizer"), .field = ""}, {.path = Path("tokenizer/merges.txt/no"), .field = ""}},
      Path("saved"));
  ASSERT_TRUE(left_out.ok()) << left_out.status();
  EXPECT_THAT(*left_out, ElementsAre(HasSubstr("/tokenizer/tokenizer.json: No such file"),
                                     HasSubstr("/tokenizer/vocab.json: it is a folder")));
  EXPECT_THAT(Source(), ElementsAre("merges.txt: merges"));
  EXPECT_FALSE(std::filesystem::exists(Path("saved/source.next")));
}

TEST_F(SourceFilesTest, AFolderMayBeReplacedByItself) {
  folder_.Write("saved/source/config.json", "mine");
  folder_.Write("saved/source/tokenizer.json", "mine");
  const std::string source = Path("saved/step-1/../source");
  folder_.Write("saved/step-1/manifest.json", "{}");
  ASSERT_TRUE(ReplaceSource(files_, {{.path = source, .field = "", .of_model = true}}, Path("saved")).ok());
  EXPECT_THAT(Source(), ElementsAre("config.json: mine", "tokenizer.json: mine"));
}

}  // namespace
}  // namespace tandem::checkpoint
