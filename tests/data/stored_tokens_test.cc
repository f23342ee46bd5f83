// SPDX-License-Identifier: Apache-2.0
#include "data/stored_tokens.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <memory>
#include <numeric>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "data/held_out.h"
#include "data/loader.h"
#include "data/text.h"
#include "tests/data/data_error.h"
#include "tests/data/page_cache.h"
#include "tests/data/prepared_folder.h"
#include "tests/platform/fake_clock.h"
#include "tests/platform/temporary_folder.h"

namespace tandem::data {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

// Shards of documents of random lengths, and the same as one list of tokens and of starts.
class StoredTokensTest : public testing::Test {
 protected:
  void Make(uint64_t seed, bool u16, int num_shards = 5) {
    std::mt19937_64 random(seed);
    shards_.assign(num_shards, {});
    tokens_.clear();
    starts_.clear();
    for (std::vector<Document>& shard : shards_) {
      for (uint64_t i = 0; i < 1 + random() % 30; ++i) {
        Document document(1 + random() % (i % 5 == 0 ? 300 : 8));
        for (int64_t& token : document) {
          token = static_cast<int64_t>(random() % 1000);
        }
        starts_.push_back(static_cast<int64_t>(tokens_.size()));
        tokens_.insert(tokens_.end(), document.begin(), document.end());
        shard.push_back(std::move(document));
      }
    }
    path_ = WriteDataset(folder_, "set-" + std::to_string(seed), shards_, u16);
  }

  SplitText Open(double fraction = 0, bool packed = false, int64_t sequence_length = 7) {
    TextOptions options{.train = {{"data.train", path_}},
                        .validation_fraction = fraction,
                        .sequence_length = sequence_length};
    if (packed) {
      options.documents = Documents{};
    }
    return OpenText(options, clock_);
  }

  std::string Error() {
    return ErrorOf([&] { Open(); });
  }

  std::vector<int64_t> StartsIn(int64_t begin, int64_t count) const {
    std::vector<int64_t> starts;
    for (const int64_t start : starts_) {
      if (start >= begin && start < begin + count) {
        starts.push_back(start);
      }
    }
    return starts;
  }

  platform::TemporaryFolder folder_;
  platform::FakeClock clock_;
  std::vector<std::vector<Document>> shards_;
  std::vector<int64_t> tokens_;
  std::vector<int64_t> starts_;
  std::string path_;
};

TEST_F(StoredTokensTest, AnyRangeMatchesTheFiles) {
  for (uint64_t seed = 1; seed <= 20; ++seed) {
    SCOPED_TRACE(seed);
    Make(seed, /*u16=*/seed % 2 == 0);
    const SplitText text = Open();
    ASSERT_EQ(text.train[0]->num_tokens(), static_cast<int64_t>(tokens_.size()));
    EXPECT_EQ(text.validation[0]->num_tokens(), 0);
    std::mt19937_64 random(seed);
    for (int i = 0; i < 200; ++i) {
      const auto begin = static_cast<int64_t>(random() % tokens_.size());
      const auto count = static_cast<int64_t>(1 + random() % (tokens_.size() - begin));
      std::vector<int64_t> tokens(count);
      text.train[0]->Read(begin, count, tokens.data());
      EXPECT_TRUE(std::equal(tokens.begin(), tokens.end(), tokens_.begin() + begin)) << begin << " " << count;
      EXPECT_EQ(text.train[0]->DocumentStarts(begin, count), StartsIn(begin, count));
    }
  }
}

// Documents of a thousand tokens each, of which the disk is asked for one window in the middle.
TEST_F(StoredTokensTest, WillReadReadsAhead) {
  std::vector<Document> documents(4000, Document(1000, 7));
  path_ = WriteDataset(folder_, "large", {documents});
  WriteMasks(folder_, "large", {documents}, {std::vector<bool>(4'000'000, true)});
  const SplitText text = Open(0, /*packed=*/true, /*sequence_length=*/4096);
  const std::string bin = path_ + "/tokens-0.bin";
  const std::string idx = path_ + "/tokens-0.idx";
  const std::string mask = path_ + "/tokens-0.mask";
  for (const std::string& file : {bin, idx, mask}) {
    if (!DropFromCache(file)) {
      GTEST_SKIP() << "this file system keeps its files in memory";
    }
  }
  text.train[0]->WillRead(2'000'000, 4097);
  EXPECT_TRUE(BecomesCached(bin, 4'000'000, 2 * 4097));
  EXPECT_TRUE(BecomesCached(mask, 250'000, 512));
  EXPECT_TRUE(BecomesCached(idx, 34 + 4 * 4000 + 8 * 2000, 8 * 5));
  EXPECT_FALSE(IsCached(bin, 0, 1) || IsCached(bin, 6'000'000, 2 * 4097));
}

TEST_F(StoredTokensTest, TheLastDocumentsAreHeldOut) {
  for (uint64_t seed = 1; seed <= 20; ++seed) {
    Make(seed, true);
    const SplitText text = Open(0.2);
    const auto all = static_cast<int64_t>(tokens_.size());
    const int64_t trained = text.train[0]->num_tokens();
    EXPECT_EQ(trained + text.validation[0]->num_tokens(), all);
    EXPECT_GE(trained, static_cast<int64_t>(0.8 * static_cast<double>(all)) - 1);
    // The first document from there on.
    const std::vector<int64_t> later = StartsIn(all - std::llround(static_cast<double>(all) * 0.2), all);
    EXPECT_EQ(trained, later.empty() ? all : later[0]);
    if (text.validation[0]->num_tokens() > 0) {
      int64_t first = -1;
      text.validation[0]->Read(0, 1, &first);
      EXPECT_EQ(first, tokens_[trained]);
      EXPECT_THAT(text.validation[0]->DocumentStarts(0, 1), ElementsAre(0));
    }
    EXPECT_NE(text.train[0]->identity().digest, Open(0).train[0]->identity().digest);
  }
}

TEST_F(StoredTokensTest, AtMostAMillionWindowsAreHeldOut) {
  EXPECT_EQ(HeldOutTokens(int64_t{1} << 40, 0.5, 9), (int64_t{1} << 20) * 10);
  EXPECT_EQ(HeldOutTokens(1000, 0.05, 9), 50);
}

TEST_F(StoredTokensTest, HeldOutEndNeedsNoTokens) {
  for (uint64_t seed = 1; seed <= 20; ++seed) {
    Make(seed, seed % 2 == 0);
    for (const double fraction : {0.0, 0.01, 0.2, 0.5}) {
      const StoredTokens folder({"data.train", path_}, std::make_shared<FileReader>(clock_));
      EXPECT_EQ(EarliestHeldOut(folder.text(), fraction, 9), HeldOutFrom(folder, fraction, 9)) << seed;
    }
  }
}

TEST_F(StoredTokensTest, APositionHasAFileAndAByte) {
  Make(4, /*u16=*/false, 2);
  const SplitText text = Open();
  int64_t first = 0;
  for (const Document& document : shards_[0]) {
    first += static_cast<int64_t>(document.size());
  }
  EXPECT_EQ(text.train[0]->Where(2), (Place{.file = path_ + "/tokens-0.bin", .byte = 8}));
  EXPECT_EQ(text.train[0]->Where(first + 3), (Place{.file = path_ + "/tokens-1.bin", .byte = 12}));
}

TEST_F(StoredTokensTest, DigestsCoverContentNotPlace) {
  Make(5, true);
  const std::string one = path_;
  const SplitText first = Open();
  WriteDataset(folder_, "copy", shards_);
  path_ = folder_.path() + "/copy";
  const SplitText copy = Open();
  EXPECT_EQ(first.train[0]->identity().digest, copy.train[0]->identity().digest);
  EXPECT_EQ(first.train[0]->identity().content_digest, copy.train[0]->identity().content_digest);
  shards_[0][0][0] ^= 1;
  WriteDataset(folder_, "copy", shards_);
  const SplitText other = Open();
  EXPECT_EQ(first.train[0]->identity().digest, other.train[0]->identity().digest);
  EXPECT_NE(first.train[0]->identity().content_digest, other.train[0]->identity().content_digest);
  EXPECT_NE(first.train[0]->identity().documents_digest, first.train[0]->identity().digest);
}

TEST_F(StoredTokensTest, FilesThatDoNotBelongTogetherAreNamed) {
  Make(6, true, 2);
  const std::string bin = BinOf(shards_[0], true);
  const std::string idx = IdxOf(shards_[0], true);
  const std::string name = std::filesystem::path(path_).filename().string();
  const auto write = [&](const std::string& suffix, const std::string& content) {
    folder_.Write(name + "/tokens-0" + suffix, content);
  };
  write(".bin", bin.substr(0, bin.size() - 2));
  EXPECT_EQ(Error(), "data.train: " + path_ + "/tokens-0.bin has " + std::to_string(bin.size() - 2) +
                         " bytes where dataset.json says " + std::to_string(bin.size()) +
                         ": it was cut off, or is another file; copy the folder again, or make it again with "
                         "tandem data prepare");
  write(".bin", bin);
  write(".idx", idx.substr(0, idx.size() - 1));
  EXPECT_THAT(Error(), HasSubstr("tokens-0.idx has "));
  write(".idx", "version https://git-lfs.github.com/spec/v1\noid sha256:1\nsize 5\n");
  EXPECT_THAT(Error(), HasSubstr("tokens-0.idx is not an index: it does not begin with MMIDIDX"));
  write(".idx", IdxOf(shards_[0], false));
  EXPECT_THAT(Error(), HasSubstr("tokens-0.idx has tokens of type 4 where dataset.json says u16"));
  write(".idx", IdxOf(shards_[1], true));
  EXPECT_THAT(Error(),
              testing::AnyOf(HasSubstr(" sequences where dataset.json says "), HasSubstr("do not fill")));
  std::filesystem::remove(path_ + "/tokens-0.idx");
  EXPECT_THAT(Error(), HasSubstr("tokens-0.idx"));
}

TEST_F(StoredTokensTest, IndexOutOfOrderIsAnError) {
  path_ = WriteDataset(folder_, "bad", {{{1, 2}, {3, 4}, {5, 6}, {7, 8}}});
  std::string idx = IdxOf({{1, 2}, {3, 4}, {5, 6}, {7, 8}}, true);
  const IndexHeader header = ParseIndexHeader(idx.substr(0, kIndexHeaderBytes), idx.size()).value();
  for (const int64_t pointer : {int64_t{-4}, int64_t{1}, int64_t{1} << 62, int64_t{0}}) {
    std::memcpy(idx.data() + header.PointerAt(2), &pointer, sizeof(pointer));
    folder_.Write("bad/tokens-0.idx", idx);
    const SplitText text = Open();
    if (pointer != 0) {
      EXPECT_THROW(text.train[0]->DocumentStarts(0, 8), DataError) << pointer;
    }
  }
}

// As a copy that is made anew while a job runs. The index is not part of it.
TEST_F(StoredTokensTest, ChangedFileIsNamed) {
  Make(7, true, 1);
  const SplitText text = Open();
  std::vector<int64_t> tokens(tokens_.size());
  text.train[0]->Read(0, tokens_.size(), tokens.data());
  std::filesystem::resize_file(path_ + "/tokens-0.bin", 2);
  EXPECT_THAT(ErrorOf([&] { text.train[0]->Read(0, tokens_.size(), tokens.data()); }),
              HasSubstr("tokens-0.bin became shorter while the job reads it"));
  clock_.Advance(absl::Minutes(1));
  text.train[0]->WillRead(0, 1);  // leaves errors to Read
  EXPECT_THAT(ErrorOf([&] { text.train[0]->Read(0, 1, tokens.data()); }),
              HasSubstr("tokens-0.bin was changed while the job reads it: it had "));
}

TEST_F(StoredTokensTest, AnyIndexIsReadOrRefused) {
  constexpr uint64_t kSeed = 7;
  std::mt19937_64 random(kSeed);
  const std::vector<Document> shard = {{1, 2, 3}, {4}, {5, 6, 7, 8}, {9}};
  path_ = WriteDataset(folder_, "fuzz", {shard});
  const std::string good = IdxOf(shard, true);
  int opened = 0;
  for (int i = 0; i < 3'000; ++i) {
    std::string idx = good;
    idx[random() % idx.size()] = static_cast<char>(random());
    folder_.Write("fuzz/tokens-0.idx", idx);
    try {
      const SplitText text = Open();
      ++opened;
      for (const int64_t start : text.train[0]->DocumentStarts(0, 9)) {
        EXPECT_TRUE(start >= 0 && start < 9);
      }
    } catch (const DataError& error) {
      EXPECT_THAT(error.what(), HasSubstr("tokens-0.idx"));
    }
  }
  EXPECT_GT(opened, 300) << "seed " << kSeed;
}

// Numbers whose products with the sizes of its entries are no number of 64 bits.
TEST_F(StoredTokensTest, AnIndexOfTooManySequencesIsRefused) {
  const std::vector<Document> shard = {{1, 2}, {3, 4}};
  path_ = WriteDataset(folder_, "many", {shard});
  for (const uint64_t sequences : {uint64_t{1} << 62, uint64_t{1} << 60, ~uint64_t{0}}) {
    for (const int place : {18, 26}) {  // the number of sequences, and that of documents
      std::string idx = IdxOf(shard, true);
      std::memcpy(idx.data() + place, &sequences, sizeof(sequences));
      folder_.Write("many/tokens-0.idx", idx);
      EXPECT_THAT(Error(), testing::AllOf(HasSubstr("tokens-0.idx says that it has "),
                                          HasSubstr(std::to_string(sequences))));
    }
  }
}

TEST_F(StoredTokensTest, AnyMaskIsReadOrRefused) {
  constexpr uint64_t kSeed = 9;
  std::mt19937_64 random(kSeed);
  const std::vector<Document> shard = {{1, 2, 3}, {4}, {5, 6, 7, 8}, {9}};  // 9 tokens
  path_ = WriteDataset(folder_, "masked", {shard});
  WriteMasks(folder_, "masked", {shard}, {std::vector<bool>(9, true)});
  int read = 0;
  for (int i = 0; i < 100'000; ++i) {
    std::string mask(random() % 5, '\0');
    for (char& byte : mask) {
      byte = static_cast<char>(random());
    }
    std::filesystem::remove(folder_.path() +
                            "/masked/tokens-0.mask");  // what is truncated is written to disk
    folder_.Write("masked/tokens-0.mask", mask);
    if (mask.size() != 2) {
      EXPECT_THAT(Error(), HasSubstr(absl::StrCat("tokens-0.mask has ", mask.size(), " bytes where ")));
      continue;
    }
    ++read;
    const std::vector<bool> counted = Open().train[0]->Counted(0, 9);
    for (int token = 0; token < 9; ++token) {
      EXPECT_EQ(counted[token], (mask[token / 8] >> (token % 8) & 1) == 1) << "seed " << kSeed;
    }
  }
  EXPECT_GT(read, 300) << "seed " << kSeed;
}

TEST_F(StoredTokensTest, MasksSayWhichTokensCount) {
  for (const uint64_t seed : {31, 32, 33}) {
    Make(seed, seed % 2 == 0);
    std::mt19937_64 random(seed);
    std::vector<std::vector<bool>> counted(shards_.size());
    std::vector<bool> all;
    for (size_t i = 0; i < shards_.size(); ++i) {
      for (const Document& document : shards_[i]) {
        for (size_t token = 0; token < document.size(); ++token) {
          counted[i].push_back(random() % 3 > 0);
          all.push_back(counted[i].back());
        }
      }
    }
    const std::string digest = Open().train[0]->identity().digest;
    WriteMasks(folder_, "set-" + std::to_string(seed), shards_, counted, seed % 2 == 0);
    const SplitText text = Open();
    const TokenSource& source = *text.train[0];
    EXPECT_TRUE(source.has_masks());
    EXPECT_NE(source.identity().digest, digest);
    for (int i = 0; i < 200; ++i) {
      const auto begin = static_cast<int64_t>(random() % all.size());
      const auto count = static_cast<int64_t>(random() % (all.size() - begin + 1));
      EXPECT_EQ(source.Counted(begin, count),
                std::vector<bool>(all.begin() + begin, all.begin() + begin + count));
    }
    const Loader loader({{.source = text.train[0]}}, Split::kValidation, 1, 7, {.has_targets = true});
    std::vector<int64_t> row(loader.row_elements());
    int64_t uncounted = 0;
    const int64_t windows = std::min<int64_t>(5, loader.num_windows());
    for (int64_t window = 0; window < windows; ++window) {
      loader.Fill(1, window, windows, 1, row.data());
      for (int64_t i = 0; i < 7; ++i) {
        const bool counts = all[window * 8 + i + 1];
        EXPECT_EQ(row[8 + i], counts ? row[i + 1] : kNotCounted);
        uncounted += counts ? 0 : 1;
      }
    }
    EXPECT_EQ(loader.NumUncounted(windows), uncounted);
    EXPECT_THROW(Loader({{.source = text.train[0]}}, Split::kTrain, 1, 7), DataError)
        << "its rows have no targets";
    folder_.Write("set-" + std::to_string(seed) + "/tokens-0.mask", "");
    EXPECT_THAT(Error(), HasSubstr("tokens-0.mask has 0 bytes where "));
    std::filesystem::remove(path_ + "/tokens-0.mask");
    EXPECT_THAT(Error(), HasSubstr("tokens-0.mask is missing, though dataset.json says"));
  }
}

TEST_F(StoredTokensTest, AnIdThatNeverCountsIsMasked) {
  path_ = WriteDataset(folder_, "set", {{{1, 2, 3, 1, 5, 6, 1, 8}}});
  std::string description = DescriptionOf({{{1, 2, 3, 1, 5, 6, 1, 8}}}, true);
  description.insert(description.find("\"inputs\""), "\"never_counted\": 1, ");
  folder_.Write("set/dataset.json", description);
  EXPECT_THAT(Open().train[0]->Counted(2, 5), ElementsAre(true, false, true, true, false));
}

TEST_F(StoredTokensTest, TextOfTwoKindsOrTokenizersIsRefused) {
  Make(8, true);
  const std::string bytes = folder_.Write("text/a.txt", std::string(1000, 'x'));
  const auto error = [&](TextOptions options) {
    options.sequence_length = 7;
    return ErrorOf([&] { OpenText(options, clock_); });
  };
  EXPECT_THAT(error({.train = {{"data.train", path_}}, .validation = {{"data.validation", bytes}}}),
              HasSubstr("is not tokens"));
  EXPECT_THAT(error({.train = {{"data.train", bytes}}, .validation = {{"data.validation", path_}}}),
              HasSubstr("is tokens"));
  EXPECT_THAT(error({.train = {{"data.train", path_}}, .validation = {{"data.validation", path_}}}),
              HasSubstr("is also a file of data.train, "));
  EXPECT_THAT(error({.train = {{"data.train", path_}}, .documents = Documents{.end_of_document = 10}}),
              HasSubstr("omit the key"));
  EXPECT_EQ(error({.train = {{"data.train", bytes}}}), "no error");
}

}  // namespace
}  // namespace tandem::data
