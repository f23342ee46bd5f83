// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>

#include "absl/strings/str_cat.h"
#include "jobspec/decoder_config.h"
#include "jobspec/jobspec.h"
#include "model/parameter_and_flop_counts.h"
#include "tests/data/prepared_folder.h"
#include "tests/jobspec/bad_spec.h"
#include "tests/platform/temporary_folder.h"

namespace tandem::jobspec {
namespace {

using ::testing::HasSubstr;
using ::testing::StartsWith;

class CheckFilesTest : public ::testing::Test {
 protected:
  CheckFilesTest() {
    folder_.Write("data/a.txt", std::string(1000, 'x'));
    spec_ = ReadText(kGoodSpec, "").spec;
    spec_.mutable_data()->set_train(folder_.path() + "/data");
  }

  std::string Check() const { return ToText(CheckFiles(Resolve(spec_))); }

  // Expects that of all fields this one's value is refused. why: what is allowed, and what to do.
  void ExpectRefused(const std::string& field, const std::string& value, const std::string& why) const {
    EXPECT_EQ(Check(), absl::StrCat(field, ": ", value, " is not allowed; allowed: ", why, "\n"));
  }

  platform::TemporaryFolder folder_;
  v1::JobSpec spec_;
};

TEST_F(CheckFilesTest, FolderFileAndGlobAreGood) {
  EXPECT_EQ(Check(), "");
  spec_.mutable_data()->set_train(folder_.path() + "/data/a.txt");
  EXPECT_EQ(Check(), "");
  folder_.Write("held/v.txt", std::string(1000, 'x'));
  spec_.mutable_data()->set_train(folder_.path() + "/d*/[a-c].txt");
  spec_.mutable_data()->set_validation(folder_.path() + "/held");
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
  ExpectRefused("data.train", empty, "an existing file, folder or glob; the folder holds no file");
  folder_.Write("empty/nothing", "");
  ExpectRefused("data.train", empty,
                "at least 17 bytes (sequence_length + 1); it holds 0 bytes in 1 file: use more text, or "
                "shorter sequences");
}

TEST_F(CheckFilesTest, DocumentsNeedSomethingThatEndsThem) {
  spec_.mutable_data()->set_documents(v1::DOCUMENTS_PACKED);
  folder_.Write("data/empty.txt", "");
  std::filesystem::create_hard_link(folder_.path() + "/data/a.txt", folder_.path() + "/data/same.txt");
  const auto expect_refused = [&](const char* files) {
    ExpectRefused(
        "data.documents", "packed",
        absl::StrCat("stream, or packed where two files or more are trained on; a file is a document, and "
                     "only a.txt is trained on, of ",
                     files, " with text in ", folder_.path(),
                     "/data: name the token that ends a document with data.end_of_document, or use stream"));
  };
  expect_refused("1 file");
  spec_.mutable_data()->set_end_of_document('\n');
  EXPECT_EQ(Check(), "");
  spec_.mutable_data()->clear_end_of_document();
  folder_.Write("data/b.txt", std::string(100, 'b'));
  expect_refused("2 files");  // one of two is held out
  spec_.mutable_data()->set_validation_fraction(0);
  spec_.mutable_training()->set_validate_every_steps(0);
  EXPECT_EQ(Check(), "");
  spec_.mutable_data()->set_validation_fraction(0.1);
  folder_.Write("data/c.txt", std::string(100, 'c'));
  EXPECT_EQ(Check(), "");
}

// The trainer refuses these when it starts: the same split says so before the job is queued.
TEST_F(CheckFilesTest, HeldOutTextNeedsAWindow) {
  folder_.Write("data/README", "r");
  folder_.Write("data/empty", "");
  ExpectRefused("data.train", folder_.path() + "/data",
                "at least 17 bytes (sequence_length + 1) to hold out; validation_fraction 0.05 holds out "
                "README, 1 byte, as whole files: name "
                "other text with data.validation, hold out a larger fraction, or use "
                "training.validate_every_steps: 0");
  spec_.mutable_training()->set_validate_every_steps(0);
  EXPECT_EQ(Check(), "");
  spec_.mutable_training()->clear_validate_every_steps();
  spec_.mutable_data()->set_validation(folder_.Write("held.txt", std::string(17, 'h')));
  EXPECT_EQ(Check(), "");
  spec_.mutable_data()->clear_validation();
  spec_.mutable_data()->set_train(folder_.path() + "/data/a.txt");
  spec_.mutable_data()->set_validation_fraction(0.016);
  EXPECT_THAT(Check(), HasSubstr("to hold out; validation_fraction 0.016 holds out a.txt, 16 bytes: name "));
  spec_.mutable_data()->set_validation_fraction(0.017);
  EXPECT_EQ(Check(), "");
  folder_.Write("short/a", std::string(16, 'a'));
  folder_.Write("short/b", std::string(16, 'b'));
  spec_.mutable_data()->set_train(folder_.path() + "/short");
  spec_.mutable_training()->set_validate_every_steps(0);
  EXPECT_THAT(Check(), HasSubstr("/short is not allowed; allowed: at least 17 bytes (sequence_length + 1) to "
                                 "train on; beside what validation_fraction 0.017 holds out there is "));
}

TEST_F(CheckFilesTest, ValidationTextMayNotBeTrainedOn) {
  const std::string file = folder_.path() + "/data/a.txt";
  const std::string hard = folder_.path() + "/hard";
  std::filesystem::create_hard_link(file, hard);
  for (const auto& [validation, found] : std::initializer_list<std::pair<std::string, std::string>>{
           {file, file + " is also a training file"},
           {folder_.path() + "/data", file + " is also a training file"},
           {hard, hard + " is also a training file, " + file}}) {
    spec_.mutable_data()->set_validation(validation);
    ExpectRefused("data.validation", validation,
                  "files that are not among those of data.train; " + found +
                      ": name other files, or hold out a part of data.train with data.validation_fraction");
  }
  folder_.Write("other", std::string(1000, 'x'));
  spec_.mutable_data()->set_validation(folder_.path() + "/other");
  EXPECT_EQ(Check(), "");
}

TEST_F(CheckFilesTest, EachValidationSetIsLookedAt) {
  const std::string file = folder_.path() + "/data/a.txt";
  folder_.Write("other", std::string(1000, 'x'));
  folder_.Write("short", std::string(16, 'x'));
  for (const std::string& path : {folder_.path() + "/other", file, folder_.path() + "/short"}) {
    spec_.mutable_data()->add_validation_sets()->set_path(path);
  }
  EXPECT_EQ(Check(),
            "data.validation_sets[1].path: " + file +
                " is not allowed; allowed: files that are not among those of data.train; " + file +
                " is also a training file: name other files, or hold out a part of data.train with "
                "data.validation_fraction\n"
                "data.validation_sets[2].path: " +
                folder_.path() +
                "/short is not allowed; allowed: at least 17 bytes (sequence_length + 1); it holds 16 "
                "bytes in 1 file: use more text, or shorter sequences\n");
}

TEST_F(CheckFilesTest, CheckpointsMayNotBecomeTextToTrainOn) {
  const std::string data = folder_.path() + "/data";
  std::filesystem::create_directory_symlink(data, folder_.path() + "/link");
  for (const auto& [train, directory] :
       std::initializer_list<std::pair<std::string, std::string>>{{data, data + "/runs/ck"},
                                                                  {data, folder_.path() + "/link/ck"},
                                                                  {folder_.path() + "/link/", data + "/ck"},
                                                                  {folder_.path() + "/d*", data + "/ck"},
                                                                  {data + "/*", data + "/ck"}}) {
    spec_.mutable_data()->set_train(train);
    spec_.mutable_checkpoint()->set_directory(directory);
    ExpectRefused("checkpoint.directory", directory,
                  "a folder that is not among the files of data.train; " + train +
                      " would take the checkpoints for text: use a folder beside it, not in it");
  }
  for (const auto& [train, directory] :
       std::initializer_list<std::pair<std::string, std::string>>{{data, folder_.path() + "/data-runs"},
                                                                  {data + "/*.txt", data + "/ck"},
                                                                  {data + "/a.txt", data + "/ck"}}) {
    spec_.mutable_data()->set_train(train);
    spec_.mutable_checkpoint()->set_directory(directory);
    EXPECT_EQ(Check(), "") << train;
  }
  spec_.mutable_data()->set_validation(data);
  EXPECT_THAT(Check(), HasSubstr("not among the files of data.validation"));
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
  ExpectRefused("data.train", "/dev/null",
                "an existing file, folder or glob; /dev/null is a device, neither a file nor a folder");
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
  ExpectRefused("checkpoint.directory", folder_.path() + "/run",
                "a new or empty folder, unless checkpoint.resume says how to go on; it holds step-50: use "
                "checkpoint: {resume: newest} to go on from there, or another folder");
  for (const char* word : {"newest", "none"}) {
    spec_.mutable_checkpoint()->set_resume(word);
    EXPECT_EQ(Check(), "");
  }
}

// A rank 0 that was killed while the ranks looked whether it is the same folder on all machines, or as it
// became the folder's owner.
TEST_F(CheckFilesTest, LeftoversOfAKilledStartCountAsEmpty) {
  folder_.Write("run/.same-folder.0123456789abcdef0123456789abcdef", "0123456789abcdef0123456789abcdef");
  folder_.Write("run/.owner.0123456789ab.1.tmp", "{}");
  spec_.mutable_checkpoint()->set_directory(folder_.path() + "/run");
  EXPECT_EQ(Check(), "");
  folder_.Write("run/.owner", "{}");
  EXPECT_THAT(Check(), HasSubstr("; it holds .owner: use "));
  std::filesystem::remove(folder_.path() + "/run/.owner");
  folder_.Write("run/step-50", "x");
  EXPECT_THAT(Check(), HasSubstr("; it holds step-50: use "));
}

TEST_F(CheckFilesTest, DanglingLinkIsNoCheckpointFolder) {
  const std::string link = folder_.path() + "/link";
  const std::string gone = folder_.path() + "/unmounted/runs";
  std::filesystem::create_symlink(gone, link);
  for (const char* const below : {"", "/", "/deep/run"}) {
    spec_.mutable_checkpoint()->set_directory(link + below);
    ExpectRefused("checkpoint.directory", link + below,
                  "a folder that can be made, or written to; " + link + " is a symbolic link to " + gone +
                      ", where nothing is: make that folder, mount its file system, or remove the link");
  }
  std::filesystem::create_directories(gone);
  EXPECT_EQ(Check(), "");
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
  spec_.mutable_model()->set_head_dim(4096);
  EXPECT_THAT(Check(), HasSubstr("a folder with room for one checkpoint, 425564263 MB; free are "));
}

TEST_F(CheckFilesTest, ACheckpointHasTheLayersOfThePattern) {
  const ReadResult read = ReadText(
      absl::StrCat(
          "model: {model_type: hybrid, hybrid_pattern: \"[G-][*E]\", hidden_size: 1048576, "
          "intermediate_size: 1048576, num_attention_heads: 64, head_dim: 128, gated_delta_net: "
          "{num_key_heads: 8}, vocab_size: 16777216, moe: {num_experts: 4, "
          "num_experts_per_tok: 2, moe_intermediate_size: 64, shared_expert_intermediate_size: 32}}\n"
          "data: {train: ",
          folder_.path(),
          "/data}\ntraining: {steps: 1, sequence_length: 8, micro_batch_size: 1, global_batch_size: 1}\n"
          "resources: {device: cpu}\ncheckpoint: {directory: ",
          folder_.path(), "/run}\n"),
      "f");
  const v1::JobSpec resolved = Resolve(read.spec);
  const double parameters = static_cast<double>(model::NumParameters(ModelConfigOf(resolved.model())));
  EXPECT_THAT(ToText(CheckFiles(resolved)),
              HasSubstr(absl::StrCat("a folder with room for one checkpoint, ",
                                     static_cast<int64_t>(12 * parameters / 1e6), " MB")));
}

TEST_F(CheckFilesTest, TheCheckpointToResumeFromMustBeThere) {
  spec_.mutable_checkpoint()->set_directory(folder_.path() + "/run");
  spec_.mutable_checkpoint()->set_resume(folder_.path() + "/old/step-5");
  ExpectRefused("checkpoint.resume", folder_.path() + "/old/step-5",
                "newest, none, or the folder of one checkpoint; no such folder");
  folder_.Write("old/step-5/manifest", "x");
  EXPECT_EQ(Check(), "");
}

TEST_F(CheckFilesTest, SizesThatAreRefusedAreNotComputedWith) {
  ReadResult read = ReadText(
      "model: {preset: llama-tiny, num_hidden_layers: 9223372036854775807}\n"
      "data: {train: " +
          folder_.path() +
          "/data}\n"
          "training: {steps: 1, sequence_length: 9223372036854775807, micro_batch_size: 2, "
          "global_batch_size: 8}\n"
          "checkpoint: {directory: " +
          folder_.path() + "/new}\n",
      "f");
  const std::string text = ToText(CheckAll(read, [](const v1::JobSpec&) { return true; }).violations);
  EXPECT_THAT(text, HasSubstr("model.num_hidden_layers: 9223372036854775807 is not allowed"));
  EXPECT_THAT(text, HasSubstr("training.sequence_length: 9223372036854775807 is not allowed"));
  EXPECT_THAT(text, testing::Not(HasSubstr("checkpoint.directory")));
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

class CheckPreparedTest : public CheckFilesTest {
 protected:
  CheckPreparedTest() {
    path_ = data::WriteDataset(folder_, "set",
                               {{data::Document(600, 1), data::Document(350, 2), data::Document(50, 2)}});
    spec_.mutable_data()->set_train(path_);
    spec_.mutable_model()->set_vocab_size(1000);
  }

  std::string path_;
};

TEST_F(CheckPreparedTest, AFolderOfTokensIsGood) {
  EXPECT_EQ(Check(), "");
  spec_.mutable_data()->set_documents(v1::DOCUMENTS_PACKED);
  EXPECT_EQ(Check(), "");
}

TEST_F(CheckPreparedTest, ATokenizerLargerThanTheVocabularyIsRefused) {
  spec_.mutable_model()->set_vocab_size(999);
  ExpectRefused("model.vocab_size", "999",
                "at least 1000 with the tokenizer of data.train; the tokenizer /t has ids up to 999: use "
                "1000, or prepare the text with the model's own tokenizer");
}

TEST_F(CheckPreparedTest, WhatContradictsTheFolderIsRefused) {
  spec_.mutable_data()->set_tokenizer("bytes");
  spec_.mutable_data()->set_end_of_document(10);
  EXPECT_EQ(Check(),
            "data.tokenizer: bytes is not allowed; allowed: auto where data.train is tokens; they have a "
            "tokenizer of their own: omit the key\n"
            "data.end_of_document: 10 is not allowed; allowed: absent where data.train has an index; the "
            "index says where documents begin: omit the key\n");
}

TEST_F(CheckPreparedTest, ValidationTextHasTheSameTokenizer) {
  spec_.mutable_data()->set_validation(folder_.path() + "/data");
  EXPECT_THAT(Check(), HasSubstr("allowed: tokens, as data.train is; prepare it with the same"));
  std::string other = data::DescriptionOf({{data::Document(500, 1)}}, true);
  other.replace(other.find("aaaa"), 4, "bbbb");
  folder_.Write("other/dataset.json", other);
  spec_.mutable_data()->set_validation(folder_.path() + "/other");
  EXPECT_THAT(Check(), HasSubstr("was prepared with /t, and data.train with /t: prepare both with one"));
}

TEST_F(CheckPreparedTest, ValidationTokensMayNotBeTrainedOn) {
  const std::string file = path_ + "/tokens-0.bin";
  spec_.mutable_data()->set_train(path_);
  spec_.mutable_data()->set_validation(file);
  ExpectRefused("data.validation", file,
                "files that are not among those of data.train; " + file +
                    " is also a training file: name other files, or hold out a part of data.train with "
                    "data.validation_fraction");
  spec_.mutable_data()->clear_train();
  spec_.mutable_data()->add_sources()->set_path(
      data::WriteDataset(folder_, "first", {{data::Document(500, 3)}}));
  spec_.mutable_data()->add_sources()->set_path(path_);
  EXPECT_THAT(Check(), HasSubstr("files that are not among those of data.sources[1].path; "));
}

TEST_F(CheckPreparedTest, TheTextWithAnIndexIsNamed) {
  spec_.mutable_data()->set_documents(v1::DOCUMENTS_PACKED);
  spec_.mutable_data()->set_end_of_document(3);
  spec_.mutable_data()->clear_train();
  v1::DataSource& flat = *spec_.mutable_data()->add_sources();
  flat.set_path(folder_.Write("numbers", std::string(1000, '\1')));
  flat.set_format(v1::DATA_FORMAT_FLAT);
  flat.set_token_type(v1::TOKEN_TYPE_U16);
  EXPECT_EQ(Check(), "");
  spec_.mutable_data()->add_validation_sets()->set_path(path_);
  EXPECT_THAT(Check(), HasSubstr("absent where data.validation_sets[0].path has an index; "));
}

TEST_F(CheckPreparedTest, ABrokenDescriptionIsNamed) {
  folder_.Write("set/dataset.json", "{");
  ExpectRefused("data.train", path_,
                "a folder as tandem data prepare makes it; " + path_ +
                    "/dataset.json: it is not JSON: prepare it again");
}

TEST_F(CheckFilesTest, BytesThatAreNoTextAreRefused) {
  for (const std::string name : {"a.jsonl", "b.parquet", "c.idx", "d.jsonl.gz", "e.safetensors"}) {
    const std::string path = folder_.Write("data/" + name, std::string(1000, 'x'));
    EXPECT_THAT(Check(), HasSubstr(path + " is a")) << name;
    EXPECT_THAT(Check(), HasSubstr("make tokens of it with tandem data prepare")) << name;
    std::filesystem::remove(path);
  }
}

TEST_F(CheckFilesTest, BytesNeedAVocabularyOf256) {
  spec_.mutable_model()->set_vocab_size(255);
  ExpectRefused("model.vocab_size", "255",
                "at least 256 where bytes are tokens; a byte has 256 values: use 256");
}

}  // namespace
}  // namespace tandem::jobspec
