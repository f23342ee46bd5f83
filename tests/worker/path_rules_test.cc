// SPDX-License-Identifier: Apache-2.0
#include "worker/path_rules.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "tests/data/prepared_folder.h"
#include "tests/platform/temporary_folder.h"

namespace tandem::worker {
namespace {

namespace fs = std::filesystem;
using ::testing::AllOf;
using ::testing::HasSubstr;

const jobspec::BeforePath kLookAtAll = [](const std::string&, const std::string&) { return true; };

class PathRulesTest : public ::testing::Test {
 protected:
  PathRulesTest() {
    fs::create_directories(folder_ + "/runs");
    temporary_.Write("data/text/a.txt", "text");
    temporary_.Write("secret/key.txt", "secret");
    auto rules = Canonical({.read = {folder_ + "/data"}, .write = {folder_ + "/runs"}});
    EXPECT_TRUE(rules.ok()) << rules.status();
    rules_ = *rules;
  }

  // Why a job may not read this; "" where it may.
  std::string WhyNotRead(const std::string& path) const {
    v1::JobSpec spec;
    spec.mutable_data()->set_train(path);
    return Why(spec);
  }
  std::string WhyNotWrite(const std::string& path) const {
    v1::JobSpec spec;
    spec.mutable_checkpoint()->set_directory(path);
    return Why(spec);
  }
  std::string Why(const v1::JobSpec& spec) const {
    const std::vector<v1::Violation> violations = CheckPaths(spec, rules_, kLookAtAll);
    return violations.empty()
               ? ""
               : violations[0].path() + ": " + violations[0].allowed() + "; " + violations[0].remedy();
  }

  const platform::TemporaryFolder temporary_;
  const std::string& folder_ = temporary_.path();
  PathRules rules_;
};

TEST_F(PathRulesTest, BothFilesOfAPairAreLookedAt) {
  temporary_.Write("data/pair.bin", "tokens");
  fs::create_symlink(folder_ + "/secret/key.txt", folder_ + "/data/pair.idx");
  for (const char* const name : {"/data/pair", "/data/pair.idx", "/data/pair.bin", "/data/*.bin", "/data"}) {
    EXPECT_THAT(WhyNotRead(folder_ + name), HasSubstr("pair.idx leads to ")) << name;
  }
}

// What one format does not read another does: each file is looked at, whichever the job says.
TEST_F(PathRulesTest, NoFormatGetsOut) {
  const std::string secret = folder_ + "/secret/key.txt";
  const auto why = [&](const std::string& path, v1::DataFormat format) {
    v1::JobSpec spec;
    v1::DataSource& source = *spec.mutable_data()->add_sources();
    source.set_path(folder_ + path);
    source.set_format(format);
    return Why(spec);
  };
  temporary_.Write("data/file.bin", "tokens");
  temporary_.Write("data/file.idx", "index");
  fs::create_symlink(secret, folder_ + "/data/file");
  temporary_.Write("data/folder.bin", "tokens");
  temporary_.Write("data/folder.idx", "index");
  fs::create_directories(folder_ + "/data/folder");
  fs::create_symlink(secret, folder_ + "/data/folder/link");
  temporary_.Write("data/set/dataset.json", "{}");
  temporary_.Write("data/set.bin", "tokens");
  fs::create_symlink(secret, folder_ + "/data/set.idx");
  for (int format = v1::DATA_FORMAT_AUTO; format <= v1::DataFormat_MAX; ++format) {
    const auto of = static_cast<v1::DataFormat>(format);
    for (const char* const path : {"/data/file", "/data/folder", "/data/set"}) {
      EXPECT_THAT(why(path, of), HasSubstr(" leads to " + secret)) << path << " " << format;
    }
    EXPECT_EQ(why("/data/file.bin", of), "") << format;
  }
}

TEST_F(PathRulesTest, EachTextOfAJobIsLookedAt) {
  v1::JobSpec spec;
  spec.mutable_data()->add_sources()->set_path(folder_ + "/data/text");
  EXPECT_EQ(Why(spec), "");
  spec.mutable_data()->add_sources()->set_path(folder_ + "/secret");
  EXPECT_THAT(Why(spec), HasSubstr("data.sources[1].path: files below"));
  spec.mutable_data()->mutable_sources(1)->set_path(folder_ + "/data/text");
  spec.mutable_data()->add_validation_sets()->set_path(folder_ + "/secret/key.txt");
  EXPECT_THAT(Why(spec), HasSubstr("data.validation_sets[0].path: files below"));
}

// The hub's cache has links to blobs/ in a model's folder.
TEST_F(PathRulesTest, WeightsMayLieWhereTheirLinksLead) {
  v1::JobSpec spec;
  const auto why = [&](const std::string& folder) {
    spec.mutable_checkpoint()->set_start_from(folder);
    return Why(spec);
  };
  temporary_.Write("data/blobs/abc", "weights");
  temporary_.Write("data/model/config.json", "{}");
  fs::create_symlink(folder_ + "/data/blobs/abc", folder_ + "/data/model/model.safetensors");
  EXPECT_EQ(why(folder_ + "/data/model"), "");
  fs::create_directories(folder_ + "/runs/step-1");
  temporary_.Write("runs/step-1/manifest.json", "{}");
  EXPECT_EQ(why(folder_ + "/runs/step-1"), "") << "a job may read its checkpoints";
  fs::create_symlink(folder_ + "/secret/key.txt", folder_ + "/data/model/tokenizer.json");
  EXPECT_THAT(why(folder_ + "/data/model"), HasSubstr("leads to " + folder_ + "/secret/key.txt"));
  EXPECT_THAT(why(folder_ + "/secret"), HasSubstr("checkpoint.start_from"));
}

// A trainer copies the files of tokenizers into checkpoint.directory, which the job's user can read.
TEST_F(PathRulesTest, NoTokenizerIsCopiedFromOutsideTheRoots) {
  const std::string train = data::WriteDataset(temporary_, "data/set", {{data::Document(20, 1)}});
  const std::string description = data::DescriptionOf({{data::Document(20, 1)}}, true);
  const auto why = [&](const std::string& tokenizer, bool saves) {
    std::string text = description;
    text.replace(text.find("\"/t\""), 4, "\"" + tokenizer + "\"");
    temporary_.Write("data/set/dataset.json", text);
    v1::JobSpec spec;
    spec.mutable_data()->add_sources()->set_path(folder_ + "/data/text");
    spec.mutable_data()->add_sources()->set_path(train);
    if (saves) {
      spec.mutable_checkpoint()->set_directory(folder_ + "/runs/new");
    }
    return Why(spec);
  };
  temporary_.Write("secret/tokenizer.json", "secret");
  temporary_.Write("data/tokenizer/tokenizer.json", "{}");
  EXPECT_EQ(why(folder_ + "/data/tokenizer", true), "");
  EXPECT_EQ(why(folder_ + "/absent", true), "") << "nothing is copied";
  EXPECT_EQ(why(folder_ + "/secret", false), "") << "nothing is copied";
  for (const char* const name : {"/secret", "/secret/tokenizer.json"}) {
    EXPECT_THAT(why(folder_ + name, true),
                AllOf(HasSubstr("data.sources[1].path: "), HasSubstr("/secret/tokenizer.json lies elsewhere"),
                      HasSubstr("tokenizer.path of dataset.json")))
        << name;
  }
  fs::create_symlink(folder_ + "/secret/key.txt", folder_ + "/data/tokenizer/chat_template.jinja~");
  EXPECT_THAT(why(folder_ + "/data/tokenizer", true), HasSubstr("leads to " + folder_ + "/secret/key.txt"))
      << "what a text's folder hides is copied too";
}

TEST_F(PathRulesTest, SourceFilesAreCopiedOnlyFromRoots) {
  const auto why = [&](bool resumes) {
    v1::JobSpec spec;
    v1::Checkpoint& checkpoint = *spec.mutable_checkpoint();
    checkpoint.set_directory(folder_ + "/runs/new");
    resumes ? checkpoint.set_resume(folder_ + "/runs/old/step-1")
            : checkpoint.set_start_from(folder_ + "/runs/old/step-1");
    return Why(spec);
  };
  temporary_.Write("runs/old/step-1/manifest.json", "{}");
  temporary_.Write("runs/old/source/merges.txt", "");
  EXPECT_EQ(why(false), "");
  EXPECT_EQ(why(true), "");
  fs::create_symlink(folder_ + "/secret/key.txt", folder_ + "/runs/old/source/tokenizer.json");
  EXPECT_THAT(why(false), AllOf(HasSubstr("checkpoint.start_from: "), HasSubstr("/secret/key.txt")));
  EXPECT_THAT(why(true), AllOf(HasSubstr("checkpoint.resume: "), HasSubstr("/secret/key.txt")));
}

// Where checkpoints may lie is not limited here.
TEST_F(PathRulesTest, ReadLimitsAllowResuming) {
  rules_.write.clear();
  v1::JobSpec spec;
  spec.mutable_checkpoint()->set_directory(folder_ + "/ckpt/new");
  spec.mutable_checkpoint()->set_resume(folder_ + "/ckpt/run/step-1");
  temporary_.Write("ckpt/run/step-1/manifest.json", "{}");
  temporary_.Write("ckpt/run/source/merges.txt", "");
  EXPECT_EQ(Why(spec), "");
  fs::create_symlink(folder_ + "/secret/key.txt", folder_ + "/ckpt/run/source/tokenizer.json");
  EXPECT_THAT(Why(spec), HasSubstr("leads to " + folder_ + "/secret/key.txt"));
  spec.mutable_checkpoint()->set_directory(folder_ + "/ckpt/run");
  EXPECT_EQ(Why(spec), "") << "nothing is copied within a directory";
}

TEST_F(PathRulesTest, AJobThatGoesOnCopiesNothing) {
  const std::string train = data::WriteDataset(temporary_, "data/set", {{data::Document(20, 1)}});
  std::string text = data::DescriptionOf({{data::Document(20, 1)}}, true);
  text.replace(text.find("\"/t\""), 4, "\"" + folder_ + "/secret\"");
  temporary_.Write("data/set/dataset.json", text);
  temporary_.Write("secret/tokenizer.json", "secret");
  v1::JobSpec spec;
  spec.mutable_data()->set_train(train);
  spec.mutable_checkpoint()->set_directory(folder_ + "/runs/old");
  spec.mutable_checkpoint()->set_resume("newest");
  EXPECT_THAT(Why(spec), HasSubstr("/secret/tokenizer.json lies elsewhere"));
  temporary_.Write("runs/old/step-1/manifest.json", "{}");
  EXPECT_EQ(Why(spec), "");
}

TEST_F(PathRulesTest, WhatCannotBeListedIsRefused) {
  if (geteuid() == 0) {
    GTEST_SKIP() << "root can list every folder";
  }
  fs::create_directories(folder_ + "/runs/closed/step-1");
  fs::permissions(folder_ + "/runs/closed/step-1", fs::perms::none);
  EXPECT_THAT(WhyNotWrite(folder_ + "/runs/closed"), HasSubstr("folders that this worker can list; "));
  fs::permissions(folder_ + "/runs/closed/step-1", fs::perms::owner_all);
}

// An index of weights may name them, and they would be trained on.
TEST_F(PathRulesTest, NoNameHidesAFileOfWeights) {
  v1::JobSpec spec;
  spec.mutable_checkpoint()->set_start_from(folder_ + "/data/model");
  temporary_.Write("data/model/config.json", "{}");
  EXPECT_EQ(Why(spec), "");
  fs::create_symlink(folder_ + "/secret/key.txt", folder_ + "/data/model/weights~");
  EXPECT_THAT(Why(spec), HasSubstr("weights~ leads to " + folder_ + "/secret/key.txt"));
}

// A job appends to files of its checkpoint.directory.
TEST_F(PathRulesTest, NoLinkInACheckpointFolderGetsOut) {
  temporary_.Write("runs/old/step-1/manifest.json", "{}");
  temporary_.Write("runs/metrics.jsonl", "");
  fs::create_symlink(folder_ + "/runs/metrics.jsonl", folder_ + "/runs/old/metrics.jsonl");
  EXPECT_EQ(WhyNotWrite(folder_ + "/runs/old"), "");
  fs::create_symlink(folder_ + "/secret/key.txt", folder_ + "/runs/old/step-1/rank-0.safetensors");
  EXPECT_THAT(WhyNotWrite(folder_ + "/runs/old"), HasSubstr("leads to " + folder_ + "/secret/key.txt"));
  fs::remove(folder_ + "/runs/old/step-1/rank-0.safetensors");
  temporary_.Write("runs/other/step/manifest.json", "{}");
  fs::create_directory_symlink(folder_ + "/runs/other/step", folder_ + "/runs/old/step-9");
  EXPECT_EQ(WhyNotWrite(folder_ + "/runs/old"), "");
  fs::create_symlink(folder_ + "/secret/key.txt", folder_ + "/runs/other/step/rank-0.safetensors");
  EXPECT_THAT(WhyNotWrite(folder_ + "/runs/old"), HasSubstr("leads to " + folder_ + "/secret/key.txt"))
      << "by two links";
  fs::remove(folder_ + "/runs/other/step/rank-0.safetensors");
  fs::remove(folder_ + "/runs/old/metrics.jsonl");
  fs::create_symlink(folder_ + "/secret/new", folder_ + "/runs/old/metrics.jsonl");
  EXPECT_THAT(WhyNotWrite(folder_ + "/runs/old"), HasSubstr("leads to " + folder_ + "/secret/new"))
      << "it would be made there";
}

TEST_F(PathRulesTest, WhatLiesBelowARootMayBeUsed) {
  EXPECT_EQ(WhyNotRead(folder_ + "/data/text/a.txt"), "");
  EXPECT_EQ(WhyNotRead(folder_ + "/data"), "");
  EXPECT_EQ(WhyNotRead(folder_ + "/data/*/*.txt"), "");
  EXPECT_EQ(WhyNotWrite(folder_ + "/runs/new/deeper"), "") << "it need not be there";
  EXPECT_EQ(WhyNotWrite(folder_ + "/runs"), "");
}

TEST_F(PathRulesTest, NothingElseMay) {
  EXPECT_THAT(WhyNotRead(folder_ + "/secret/key.txt"),
              HasSubstr("data.train: files below " + folder_ + "/data; "));
  EXPECT_THAT(WhyNotRead(folder_ + "/secret/key.txt"),
              HasSubstr("have the operator of this worker allow it (--read-root)"));
  EXPECT_NE(WhyNotRead(folder_ + "/runs/../secret"), "");
  EXPECT_NE(WhyNotWrite(folder_ + "/secret/x"), "");
  EXPECT_NE(WhyNotWrite(folder_ + "/runs-of-others"), "") << "a name that begins alike";
  EXPECT_NE(WhyNotWrite(folder_), "");
  v1::JobSpec exports;
  exports.mutable_checkpoint()->mutable_export_()->set_to(folder_ + "/secret/x");
  EXPECT_THAT(Why(exports), HasSubstr("checkpoint.export.to: a folder below " + folder_ + "/runs; "));
}

TEST_F(PathRulesTest, NeitherDotsNorLinksGetOut) {
  EXPECT_NE(WhyNotRead(folder_ + "/data/../secret/key.txt"), "");
  EXPECT_NE(WhyNotRead(folder_ + "/data/text/../../secret/*"), "");
  EXPECT_NE(WhyNotWrite(folder_ + "/runs/x/../../secret/new"), "");
  fs::create_symlink(folder_ + "/secret/key.txt", folder_ + "/data/text/link.txt");
  EXPECT_THAT(WhyNotRead(folder_ + "/data"), HasSubstr("link.txt leads to " + folder_ + "/secret/key.txt"));
  fs::create_directory_symlink(folder_ + "/secret", folder_ + "/runs/out");
  EXPECT_THAT(WhyNotWrite(folder_ + "/runs/out/new"), HasSubstr("leads to " + folder_ + "/secret/new"));
  v1::JobSpec resumed;
  resumed.mutable_checkpoint()->set_resume(folder_ + "/runs/out");
  EXPECT_THAT(Why(resumed), HasSubstr("checkpoint.resume: a folder below "));
}

TEST_F(PathRulesTest, AFifoIsNoFile) {
  ASSERT_EQ(mkfifo((folder_ + "/data/text/fifo").c_str(), 0600), 0);
  EXPECT_EQ(WhyNotRead(folder_ + "/data/text/fifo"), "")
      << "those say so who look for the files, without opening it";
  EXPECT_EQ(WhyNotRead(folder_ + "/data"), "") << "it is not one of the folder's files";
}

TEST_F(PathRulesTest, WithoutRootsEverythingMayBeUsed) {
  v1::JobSpec spec;
  spec.mutable_data()->set_train("/etc/passwd");
  spec.mutable_checkpoint()->set_directory("/anywhere");
  EXPECT_TRUE(CheckPaths(spec, {}, kLookAtAll).empty());
}

TEST_F(PathRulesTest, ARootThatIsNoFolderIsRefused) {
  EXPECT_THAT(std::string(Canonical({.read = {folder_ + "/none"}, .write = {}}).status().message()),
              HasSubstr("--read-root " + folder_ + "/none: No such file or directory"));
  EXPECT_THAT(
      std::string(Canonical({.read = {}, .write = {folder_ + "/data/text/a.txt"}}).status().message()),
      HasSubstr("it is not a folder"));
}

}  // namespace
}  // namespace tandem::worker
