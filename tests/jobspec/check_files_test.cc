// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>

#include "absl/strings/str_cat.h"
#include "jobspec/jobspec.h"
#include "tests/jobspec/bad_spec.h"
#include "tests/platform/temporary_folder.h"

namespace tandem::jobspec {
namespace {

using ::testing::HasSubstr;
using ::testing::StartsWith;

class CheckFilesTest : public ::testing::Test {
 protected:
  CheckFilesTest() {
    folder_.Write("data/a.txt", std::string(100, 'x'));
    spec_ = ReadText(kGoodSpec, "").spec;
    spec_.mutable_data()->set_train(folder_.path() + "/data");
  }

  std::string Check() const { return ToText(CheckFiles(Resolve(spec_))); }

  platform::TemporaryFolder folder_;
  v1::JobSpec spec_;
};

TEST_F(CheckFilesTest, FolderFileAndGlobAreGood) {
  EXPECT_EQ(Check(), "");
  spec_.mutable_data()->set_train(folder_.path() + "/data/a.txt");
  EXPECT_EQ(Check(), "");
  spec_.mutable_data()->set_train(folder_.path() + "/d*/[a-c].txt");
  spec_.mutable_data()->set_validation(folder_.path() + "/data");
  EXPECT_EQ(Check(), "");
}

TEST_F(CheckFilesTest, MissingDataAreRefused) {
  spec_.mutable_data()->set_train("/no/such");
  spec_.mutable_data()->set_validation(folder_.path() + "/*.md");
  EXPECT_EQ(Check(),
            "data.train: /no/such is not allowed; allowed: an existing file, folder or glob; no such file or "
            "folder\n"
            "data.validation: " +
                folder_.path() +
                "/*.md is not allowed; allowed: an existing file, folder or glob; nothing matches\n");
}

TEST_F(CheckFilesTest, EmptyAndShortDataAreRefused) {
  const std::string empty = folder_.path() + "/empty";
  std::filesystem::create_directory(empty);
  spec_.mutable_data()->set_train(empty);
  EXPECT_EQ(Check(),
            "data.train: " + empty +
                " is not allowed; allowed: an existing file, folder or glob; the folder holds no file\n");
  folder_.Write("empty/nothing", "");
  EXPECT_EQ(Check(),
            "data.train: " + empty +
                " is not allowed; allowed: at least 17 bytes (sequence_length + 1); it holds 0 bytes in 1 "
                "file: use more text, or shorter sequences\n");
}

TEST_F(CheckFilesTest, DocumentsNeedSomethingThatEndsThem) {
  spec_.mutable_data()->set_documents(v1::DOCUMENTS_PACKED);
  folder_.Write("data/empty.txt", "");
  std::filesystem::create_hard_link(folder_.path() + "/data/a.txt", folder_.path() + "/data/same.txt");
  const auto refusal = [&](int files) {
    return absl::StrCat(
        "data.documents: packed is not allowed; allowed: stream, or packed where two files or more are "
        "trained "
        "on; a file is a document, and of ",
        files, " in ", folder_.path(),
        "/data one is trained on: name the token that ends a document with data.end_of_document, or use "
        "stream\n");
  };
  EXPECT_EQ(Check(), refusal(1));
  spec_.mutable_data()->set_end_of_document('\n');
  EXPECT_EQ(Check(), "");
  spec_.mutable_data()->clear_end_of_document();
  folder_.Write("data/b.txt", "b");
  EXPECT_EQ(Check(), refusal(2)) << "one of two is held out";
  spec_.mutable_data()->set_validation_fraction(0);
  spec_.mutable_training()->set_validate_every_steps(0);
  EXPECT_EQ(Check(), "");
  spec_.mutable_data()->set_validation_fraction(0.1);
  folder_.Write("data/c.txt", "c");
  EXPECT_EQ(Check(), "");
}

TEST_F(CheckFilesTest, UnreadableDataAreRefused) {
  if (geteuid() == 0) {
    GTEST_SKIP() << "root reads everything";
  }
  std::filesystem::permissions(folder_.path() + "/data/a.txt", std::filesystem::perms::none);
  EXPECT_THAT(Check(), HasSubstr("a.txt: Permission denied"));
}

TEST_F(CheckFilesTest, AnythingButAFileIsRefused) {
  spec_.mutable_data()->set_train("/dev/null");
  EXPECT_EQ(Check(),
            "data.train: /dev/null is not allowed; allowed: an existing file, folder or glob; /dev/null is "
            "a device, neither a file nor a folder\n");
}

TEST_F(CheckFilesTest, ACheckpointFolderMayBeMadeOrEmpty) {
  spec_.mutable_checkpoint()->set_directory(folder_.path() + "/runs/deep/new");
  EXPECT_EQ(Check(), "");
  std::filesystem::create_directories(folder_.path() + "/runs/deep/new");
  EXPECT_EQ(Check(), "");
  spec_.mutable_checkpoint()->set_directory(folder_.path() + "/runs/deep/new/");
  EXPECT_EQ(Check(), "");
  EXPECT_FALSE(std::filesystem::exists(folder_.path() + "/runs/deep/new/.x"));
}

TEST_F(CheckFilesTest, AFolderThatHoldsSomethingNeedsResume) {
  folder_.Write("run/step-50", "x");
  spec_.mutable_checkpoint()->set_directory(folder_.path() + "/run");
  EXPECT_EQ(
      Check(),
      "checkpoint.directory: " + folder_.path() +
          "/run is not allowed; allowed: a new or empty folder, unless checkpoint.resume says how to go "
          "on; it holds step-50: use checkpoint: {resume: newest} to go on from there, or another "
          "folder\n");
  for (const char* word : {"newest", "none"}) {
    spec_.mutable_checkpoint()->set_resume(word);
    EXPECT_EQ(Check(), "");
  }
}

TEST_F(CheckFilesTest, AFileIsNoCheckpointFolder) {
  const std::string file = folder_.Write("file", "x");
  spec_.mutable_checkpoint()->set_directory(file);
  EXPECT_THAT(Check(), HasSubstr("; " + file + " is not a folder\n"));
  spec_.mutable_checkpoint()->set_directory(file + "/below");
  EXPECT_THAT(Check(), StartsWith("checkpoint.directory: " + file + "/below is not allowed"));
}

TEST_F(CheckFilesTest, AFolderThatCannotBeMadeIsRefused) {
  spec_.mutable_checkpoint()->set_directory("/proc/runs");
  EXPECT_THAT(Check(), StartsWith("checkpoint.directory: /proc/runs is not allowed"));
}

TEST_F(CheckFilesTest, ACheckpointMustFit) {
  spec_.mutable_checkpoint()->set_directory(folder_.path() + "/run");
  spec_.mutable_model()->set_vocab_size(1 << 24);
  spec_.mutable_model()->set_hidden_size(1 << 20);
  EXPECT_THAT(Check(), HasSubstr("a folder with room for one checkpoint, 633371961 MB; free are "));
}

TEST_F(CheckFilesTest, TheCheckpointToResumeFromMustBeThere) {
  spec_.mutable_checkpoint()->set_directory(folder_.path() + "/run");
  spec_.mutable_checkpoint()->set_resume(folder_.path() + "/old/step-5");
  EXPECT_EQ(Check(), "checkpoint.resume: " + folder_.path() +
                         "/old/step-5 is not allowed; allowed: newest, none, or the folder of one "
                         "checkpoint; no such folder\n");
  folder_.Write("old/step-5/manifest", "x");
  EXPECT_EQ(Check(), "");
}

TEST_F(CheckFilesTest, FilesAreSpokenOfTogetherWithTheRest) {
  ReadResult read = ReadText(
      "model: {preset: llama-tiny}\ndata: {train: /no/such}\ntraining: {steps: 0, sequence_length: 16, "
      "micro_batch_size: 2, global_batch_size: 8}\n",
      "f");
  const std::string text = ToText(CheckAll(read, [](const v1::JobSpec&) { return true; }).violations);
  EXPECT_THAT(text, HasSubstr("f:2:8: data.train: /no/such is not allowed"));
  EXPECT_THAT(text, HasSubstr("f:3:12: training.steps: 0 is not allowed"));
}

}  // namespace
}  // namespace tandem::jobspec
