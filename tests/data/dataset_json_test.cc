// SPDX-License-Identifier: Apache-2.0
#include "data/dataset_json.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>
#include <string>
#include <vector>

#include "absl/strings/str_replace.h"
#include "data/indexed_file.h"
#include "tests/data/prepared_folder.h"
#include "tests/platform/temporary_folder.h"

namespace tandem::data {
namespace {

using ::testing::HasSubstr;

const std::vector<std::vector<Document>> kShards = {{{1, 2, 3}, {4}}, {{5, 6}}};

TEST(DatasetJsonTest, ADescriptionIsRead) {
  const absl::StatusOr<Dataset> dataset = ParseDataset(DescriptionOf(kShards, true));
  ASSERT_TRUE(dataset.ok()) << dataset.status();
  EXPECT_EQ(dataset->vocabulary, 1000);
  EXPECT_EQ(dataset->eos, 3);
  EXPECT_EQ(dataset->bos, std::nullopt);
  EXPECT_EQ(dataset->token_type, TokenType::kU16);
  EXPECT_EQ(dataset->documents, 3);
  EXPECT_EQ(dataset->tokens, 6);
  ASSERT_EQ(dataset->shards.size(), 2u);
  EXPECT_EQ(dataset->shards[1].name, "tokens-1");
  EXPECT_EQ(dataset->shards[1].tokens, 2);
}

TEST(DatasetJsonTest, ProblemsNameWhatIsAllowed) {
  const std::string good = DescriptionOf(kShards, true);
  const std::vector<std::vector<std::string>> cases = {
      {"{\"format\"", "{\"format", "it is not JSON"},
      {"tandem-dataset", "parquet", "format must be \"tandem-dataset\""},
      {"\"version\": 1", "\"version\": 2", "version must be 1, which this build reads"},
      {"\"u16\"", "\"u8\"", "token_type must be u16 or i32"},
      {"1000", "100000", "token_type must be i32 where the vocabulary is 100000"},
      {"1000", "1.5", "tokenizer.vocabulary must be an integer from 1 to 16777216"},
      {"\"eos\": 3", "\"eos\": 1000", "tokenizer.eos must be an integer from 0 to 999"},
      {"tokens-0", "../tokens-0", "shards[0].name must be the name of a file in this folder"},
      {"tokens-0", "/tokens-0", "shards[0].name must be the name of a file in this folder"},
      {"tokens-0", "in/tokens-0", "shards[0].name must be the name of a file in this folder"},
      {"tokens-0", "", "shards[0].name must be the name of a file in this folder"},
      {"tokens-0", "tokens-1", "shards[1].name must be another one than tokens-1"},
      {"\"tokens\": 4", "\"tokens\": 5", "tokens must be the sum over the shards, 7, and is 6"},
      {"\"tokens\": 4", "\"tokens\": -4", "shards[0].tokens must be an integer from 1"},
      {"\"tokens\": 4", "\"tokens\": 4611686018427387904", "shards[0].tokens must be an integer from 1"},
      {"\"inputs\"", "\"never_counted\": 1000, \"inputs\"", "never_counted must be an integer from 0 to 999"},
      {"\"inputs\"", "\"counted\": 8, \"inputs\"", "counted must be an integer from 0 to 6"},
      {"huggingface", "sentencepiece", "tokenizer.kind must be huggingface or bytes"},
  };
  for (const std::vector<std::string>& one : cases) {
    const std::string text = absl::StrReplaceAll(good, {{one[0], one[1]}});
    ASSERT_NE(text, good);
    EXPECT_THAT(std::string(ParseDataset(text).status().message()), HasSubstr(one[2])) << text;
  }
  EXPECT_THAT(std::string(ParseDataset(std::string(100'000, '[')).status().message()), HasSubstr("not JSON"));
}

// A crash, or a sanitizer's word, is what it looks for; an error must be one line that says something.
class ReaderFuzzTest : public testing::Test {
 protected:
  // A few bytes of it are changed, left out, repeated, or cut off.
  std::string Mutated(std::string text) {
    const int changes = 1 + static_cast<int>(random_() % 4);
    for (int i = 0; i < changes && !text.empty(); ++i) {
      const size_t at = random_() % text.size();
      switch (random_() % 6) {
        case 0:
          text[at] = static_cast<char>(random_());
          break;
        case 1:
          text[at] = static_cast<char>(text[at] ^ (1 << (random_() % 8)));
          break;
        case 2:
          text.erase(at, 1 + random_() % 8);
          break;
        case 3:
          text.insert(at, text.substr(random_() % text.size(), 1 + random_() % 16));
          break;
        case 4:
          text.resize(at);
          break;
        default:
          text.replace(at, 1, random_() % 2 == 0 ? "9223372036854775807" : "\xff\xff\xff\xff");
          break;
      }
    }
    return text;
  }

  static void ExpectOneLine(const absl::Status& status) {
    EXPECT_FALSE(status.message().empty());
    EXPECT_EQ(status.message().find('\n'), std::string::npos) << status;
  }

  static constexpr uint64_t kSeed = 20261128;
  std::mt19937_64 random_{kSeed};
};

TEST_F(ReaderFuzzTest, AnyDescriptionIsReadOrNamed) {
  const std::string good = DescriptionOf(kShards, true);
  int read = 0;
  for (int i = 0; i < 100'000; ++i) {
    const std::string text = Mutated(good);
    const absl::StatusOr<Dataset> dataset = ParseDataset(text);
    if (!dataset.ok()) {
      ExpectOneLine(dataset.status());
      continue;
    }
    ++read;
    int64_t tokens = 0;
    for (const Dataset::Shard& shard : dataset->shards) {
      tokens += shard.tokens;
      EXPECT_EQ(shard.name.find('/'), std::string::npos);
    }
    EXPECT_EQ(tokens, dataset->tokens);
  }
  EXPECT_GT(read, 1000) << "seed " << kSeed;
}

TEST_F(ReaderFuzzTest, AnyIndexIsReadOrNamed) {
  const std::string good = IdxOf(kShards[0], true);
  int read = 0;
  for (int i = 0; i < 100'000; ++i) {
    const std::string bytes = Mutated(good);
    const absl::StatusOr<IndexHeader> header =
        ParseIndexHeader(bytes.substr(0, kIndexHeaderBytes), static_cast<int64_t>(bytes.size()));
    if (!header.ok()) {
      ExpectOneLine(header.status());
      continue;
    }
    ++read;
    // All that it names lies in the file.
    EXPECT_LE(header->EntryAt(header->document_entries), static_cast<int64_t>(bytes.size()));
    EXPECT_GE(header->sequences, 0);
  }
  EXPECT_GT(read, 1000) << "seed " << kSeed;
}

}  // namespace
}  // namespace tandem::data
