// SPDX-License-Identifier: Apache-2.0
#include "data/loader.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <optional>
#include <set>
#include <string>
#include <thread>
#include <utility>

#include "data/corpus.h"
#include "data/text.h"
#include "tests/data/data_error.h"
#include "tests/data/page_cache.h"
#include "tests/platform/temporary_folder.h"

namespace tandem::data {
namespace {

std::shared_ptr<const Corpus> SharedCorpus(const TextOptions& options) {
  return std::make_shared<const Corpus>(options, platform::SteadyClock());
}

std::vector<LoaderText> Of(const std::shared_ptr<const Corpus>& corpus, Split split,
                           Documents documents = {}) {
  return {{.source = corpus->Open(split, documents)}};
}

// 40 files; every window is unlike every other, since each token encodes its position in two bytes of text.
class LoaderTest : public ::testing::Test {
 protected:
  LoaderTest() {
    int counter = 0;
    for (int file = 0; file < 40; ++file) {
      std::string text;
      for (int i = 0; i < 150 + 10 * file; ++i, ++counter) {
        text += static_cast<char>(counter / 251);
        text += static_cast<char>(counter % 251);
      }
      folder_.Write("f" + std::to_string(file), text);
    }
    corpus_ = SharedCorpus({.train = {{"data.train", folder_.path()}}, .validation_fraction = 0.1});
  }

  static std::vector<int64_t> Batch(const Loader& loader, int64_t step, int64_t microbatch, int64_t count,
                                    int64_t sequences) {
    std::vector<int64_t> rows(sequences * loader.row_elements());
    loader.Fill(step, microbatch, count, sequences, rows.data());
    return rows;
  }

  // Of a sequence and the token behind it; what is left at the end is in none.
  int64_t NumWindows(Split split) const { return corpus_->Open(split)->num_tokens() / (kLength + 1); }

  static constexpr int64_t kLength = 15;
  platform::TemporaryFolder folder_;
  std::shared_ptr<const Corpus> corpus_;
};

// What wants more windows than there are gets rows that count for nothing.
TEST_F(LoaderTest, AValidationTakesEachWindowOnce) {
  const Loader held(Of(corpus_, Split::kValidation), Split::kValidation, 1, kLength, {.has_targets = true});
  const int64_t windows = NumWindows(Split::kValidation);
  const int64_t batches = windows;  // of three
  std::set<std::vector<int64_t>> seen;
  int64_t counted = 0;
  for (int64_t batch = 0; batch < batches; ++batch) {
    const std::vector<int64_t> rows = Batch(held, 0, batch, batches, 3);
    for (int64_t i = 0; i < 3; ++i) {
      const int64_t* const row = rows.data() + i * held.row_elements();
      const int64_t* const targets = row + kLength + 1;
      if (batch * 3 + i < windows) {
        EXPECT_TRUE(std::equal(targets, targets + kLength, row + 1));
        seen.insert({row, row + kLength + 1});
        ++counted;
      } else {
        EXPECT_EQ(std::count(targets, targets + kLength, kNotCounted), kLength);
      }
    }
  }
  EXPECT_EQ(counted, windows);
  EXPECT_EQ(static_cast<int64_t>(seen.size()), windows);
}

TEST_F(LoaderTest, FirstTokensOfDocumentsNeedNotCount) {
  platform::TemporaryFolder folder;
  folder.Write("text", "ab.c..defgh.");
  const auto corpus = SharedCorpus({.train = {{"data.train", folder.path()}}});
  const Loader loader(Of(corpus, Split::kTrain, {.end_of_document = '.'}), Split::kTrain, 1,
                      /*sequence_length=*/11,
                      {.packs_documents = true, .has_targets = true, .counts_first_tokens = false});
  const std::vector<int64_t> row = Batch(loader, 1, 0, 1, 1);
  const int64_t no = kNotCounted;
  EXPECT_EQ(std::vector<int64_t>(row.begin() + 12, row.begin() + 23),
            (std::vector<int64_t>{'b', '.', no, '.', no, no, 'e', 'f', 'g', 'h', '.'}));
  EXPECT_EQ(std::vector<int64_t>(row.begin() + 23, row.end()),
            (std::vector<int64_t>{0, 0, 0, 3, 3, 5, 6, 6, 6, 6, 6}));
  const Loader counts(Of(corpus, Split::kTrain, {.end_of_document = '.'}), Split::kTrain, 1, 11,
                      {.packs_documents = true});
  EXPECT_NE(loader.digest(), counts.digest());
}

TEST_F(LoaderTest, HeldOutTextNeverAppearsInTraining) {
  const Loader train(Of(corpus_, Split::kTrain), Split::kTrain, 1, kLength);
  std::set<std::vector<int64_t>> seen;
  for (int64_t n = 0; n < NumWindows(Split::kTrain); ++n) {
    seen.insert(Batch(train, n + 1, 0, 1, 1));
  }
  EXPECT_EQ(seen.size(), NumWindows(Split::kTrain));
  const Loader held(Of(corpus_, Split::kValidation), Split::kValidation, 1, kLength);
  const int64_t num_held = NumWindows(Split::kValidation);
  for (int64_t n = 0; n < num_held; ++n) {
    EXPECT_EQ(seen.count(Batch(held, 1, n, num_held, 1)), 0);
  }
}

TEST_F(LoaderTest, ValidationIsTheSameInEveryStep) {
  const Loader held(Of(corpus_, Split::kValidation), Split::kValidation, 1, kLength);
  EXPECT_EQ(Batch(held, 1, 1, 4, 2), Batch(held, 100, 1, 4, 2));
  EXPECT_EQ(Batch(held, 1, 1, 4, 2),
            Batch(Loader(Of(corpus_, Split::kValidation), Split::kValidation, 2, kLength), 1, 1, 8, 2));
  std::vector<int64_t> start(2 * (kLength + 1));
  corpus_->Open(Split::kValidation)->Read(0, 2 * (kLength + 1), start.data());
  EXPECT_EQ(Batch(held, 7, 0, 4, 2), start);
}

TEST_F(LoaderTest, ThreadsShareALoader) {
  const Loader loader(Of(corpus_, Split::kTrain), Split::kTrain, 1, kLength);
  std::vector<std::vector<int64_t>> results(4);
  std::vector<std::thread> threads;
  for (auto& result : results) {
    threads.emplace_back([&] {
      for (int64_t step = 1; step < 200; ++step) {
        result = Batch(loader, step, 0, 1, 4);
      }
    });
  }
  for (std::thread& thread : threads) {
    thread.join();
  }
  EXPECT_THAT(results, ::testing::Each(Batch(loader, 199, 0, 1, 4)));
}

// The rows of a split in order, of one sequence each: [tokens, starts].
class DocumentsTest : public testing::Test {
 protected:
  using Row = std::pair<std::string, std::vector<int64_t>>;

  // The held-out text is read in order: what would be trained on is validated here.
  std::vector<Row> Rows(const std::vector<std::string>& files, int64_t length, Documents documents) {
    platform::TemporaryFolder folder;
    folder.Write("train", std::string(100, 'x'));
    for (size_t i = 0; i < files.size(); ++i) {
      folder.Write("held/" + std::to_string(i), files[i]);
    }
    const auto corpus = SharedCorpus({.train = {{"data.train", folder.path() + "/train"}},
                                      .validation = {{"data.validation", folder.path() + "/held"}}});
    const Loader loader(Of(corpus, Split::kValidation, documents), Split::kValidation, 1, length,
                        {.packs_documents = true});
    EXPECT_EQ(loader.row_elements(), 2 * length + 1);
    std::vector<Row> rows;
    const int64_t num_windows = corpus->Open(Split::kValidation)->num_tokens() / (length + 1);
    for (int64_t window = 0; window < num_windows; ++window) {
      std::vector<int64_t> row(loader.row_elements());
      loader.Fill(1, window, num_windows, 1, row.data());
      rows.push_back({std::string(row.begin(), row.begin() + length + 1),
                      std::vector<int64_t>(row.begin() + length + 1, row.end())});
    }
    return rows;
  }
};

TEST_F(DocumentsTest, AFileIsADocument) {
  const std::vector<Row> rows = Rows({"abc", "d", "ef", "ghijkl"}, 5, {});
  EXPECT_THAT(rows, testing::ElementsAre(Row("abcdef", {0, 0, 0, 3, 4}), Row("ghijkl", {0, 0, 0, 0, 0})));
}

// "f" of the second window goes on from the first; the third is inside one document.
TEST_F(DocumentsTest, CutDocumentContinues) {
  const std::vector<Row> rows = Rows({"abcd", "efghijklmn", "op"}, 4, {});
  EXPECT_THAT(rows, testing::ElementsAre(Row("abcde", {0, 0, 0, 0}), Row("fghij", {0, 0, 0, 0}),
                                         Row("klmno", {0, 0, 0, 0})));
  EXPECT_THAT(
      Rows({"abcd", "efghijklmn", "op"}, 7, {}),
      testing::ElementsAre(Row("abcdefgh", {0, 0, 0, 0, 4, 4, 4}), Row("ijklmnop", {0, 0, 0, 0, 0, 0, 6})));
}

TEST_F(DocumentsTest, EndTokenIsItsDocumentsLast) {
  EXPECT_THAT(Rows({"ab.c..de", "f.gh"}, 11, {.end_of_document = '.'}),
              testing::ElementsAre(Row("ab.c..def.gh", {0, 0, 0, 3, 3, 5, 6, 6, 8, 8, 10})));
  // Before the window and behind its last row it changes nothing.
  EXPECT_THAT(Rows({"abc.defg.h"}, 4, {.end_of_document = '.'}),
              testing::ElementsAre(Row("abc.d", {0, 0, 0, 0}), Row("efg.h", {0, 0, 0, 0})));
}

TEST_F(LoaderTest, DocumentsChangeNoToken) {
  const Loader stream(Of(corpus_, Split::kTrain), Split::kTrain, 3, kLength);
  const Loader documents(Of(corpus_, Split::kTrain), Split::kTrain, 3, kLength, {.packs_documents = true});
  std::set<int64_t> starts;
  for (int64_t step = 200; step > 0; --step) {
    const std::vector<int64_t> tokens = Batch(stream, step, 1, 2, 3);
    const std::vector<int64_t> rows = Batch(documents, step, 1, 2, 3);
    for (int64_t i = 0; i < 3; ++i) {
      const auto row = rows.begin() + i * documents.row_elements();
      EXPECT_TRUE(std::equal(row, row + kLength + 1, tokens.begin() + i * (kLength + 1)));
      starts.insert(row + kLength + 1, row + documents.row_elements());
    }
    EXPECT_EQ(rows,
              Batch(Loader(Of(corpus_, Split::kTrain), Split::kTrain, 3, kLength, {.packs_documents = true}),
                    step, 1, 2, 3));
  }
  EXPECT_GT(starts.size(), 1u) << "no document began inside a window";
}

TEST_F(LoaderTest, TheDigestsSayWhatDocumentsAre) {
  std::set<std::string> of_contents;
  const auto digest = [&](std::optional<Documents> documents) {
    const Loader loader(Of(corpus_, Split::kTrain, documents.value_or(Documents{})), Split::kTrain, 1,
                        kLength, {.packs_documents = documents.has_value()});
    of_contents.insert(loader.content_digest());
    return loader.digest();
  };
  EXPECT_EQ(digest(std::nullopt), corpus_->Open(Split::kTrain)->identity().digest);
  EXPECT_EQ(digest(Documents{}), digest(Documents{}));
  const std::set<std::string> all = {digest(std::nullopt), digest(Documents{}), digest(Documents{0}),
                                     digest(Documents{10})};
  EXPECT_EQ(all.size(), 4u);
  EXPECT_EQ(of_contents.size(), 4u);
  for (const std::string& one : all) {
    EXPECT_EQ(one.size(), 32u);
  }
}

// What a loader of training text is refused for.
std::string Refusal(const TextOptions& source, Split split, int64_t length,
                    std::optional<Documents> documents = std::nullopt) {
  return ErrorOf([&] {
    TextOptions options = source;
    options.documents = documents;
    const SplitText text = OpenText(options, platform::SteadyClock());
    const Loader loader({{.source = (split == Split::kTrain ? text.train : text.validation)[0]}}, split, 1,
                        length, {.packs_documents = documents.has_value()});
  });
}

TEST(LoaderRefusalTest, DocumentsNeedSomethingThatEndsThem) {
  platform::TemporaryFolder folder;
  folder.Write("text", std::string(100, 'x'));
  EXPECT_EQ(Refusal({.train = {{"data.train", folder.path()}}}, Split::kTrain, 9,
                    Documents{.end_of_document = 'x'}),
            "no error");
  EXPECT_EQ(Refusal({.train = {{"data.train", folder.path()}}}, Split::kTrain, 9, Documents{}),
            "data.documents: packed finds no documents in text, the only training file, since a file is a "
            "document; name the token that ends one with data.end_of_document, or give a file for each "
            "document");
}

// 0 for 10 would otherwise train on one document without a word.
TEST(LoaderRefusalTest, EndOfDocumentMustOccur) {
  platform::TemporaryFolder folder;
  folder.Write("a", std::string(100, 'x') + "\n");
  const TextOptions one{.train = {{"data.train", folder.path()}}};
  EXPECT_EQ(Refusal(one, Split::kTrain, 9, Documents{.end_of_document = '\n'}), "no error");
  EXPECT_EQ(Refusal(one, Split::kTrain, 9, Documents{.end_of_document = 0}),
            "data.end_of_document: 0 does not occur in the training text (a); give the number of the byte "
            "that ends a document (10 for a newline), or use documents: stream");
  EXPECT_EQ(Refusal({.train = {{"data.train", folder.path()}}, .validation_fraction = 0.1}, Split::kTrain, 9,
                    Documents{.end_of_document = '\n'})
                .substr(0, 82),
            "data.end_of_document: 10 does not occur in the training text (a); give the number ")
      << "what is held out is not trained on";
  folder.Write("b", std::string(100, 'y'));
  EXPECT_EQ(Refusal(one, Split::kTrain, 9, Documents{.end_of_document = 'y'}), "no error");
  EXPECT_EQ(
      Refusal(one, Split::kTrain, 9, Documents{.end_of_document = 0}),
      "data.end_of_document: 0 does not occur in the training text (its 2 files); give the number of the "
      "byte that ends a document (10 for a newline), or omit the key: a file is then a document");
}

TEST_F(LoaderTest, WillFillReadsAhead) {
  platform::TemporaryFolder folder;
  const std::string path = folder.Write("text", std::string(4'000'000, 'x'));
  if (!DropFromCache(path)) {
    GTEST_SKIP() << "this file system keeps its files in memory";
  }
  const auto corpus = SharedCorpus({.train = {{"data.train", path}}});
  const Loader loader(Of(corpus, Split::kTrain), Split::kTrain, /*seed=*/1, /*sequence_length=*/9999);
  loader.WillFill(/*step=*/5, /*microbatch=*/1, /*num_microbatches=*/2, /*sequences=*/3);
  for (int64_t sequence = 0; sequence < 3; ++sequence) {
    EXPECT_TRUE(BecomesCached(path, loader.Where(5, 1, 2, 3, sequence, 0).byte, 10'000)) << sequence;
  }
}

TEST(LoaderRefusalTest, TooLittleTextIsAnErrorWithNumbers) {
  platform::TemporaryFolder folder;
  folder.Write("text", std::string(100, 'x'));
  const TextOptions source{.train = {{"data.train", folder.path()}}, .validation_fraction = 0.1};
  EXPECT_EQ(Refusal(source, Split::kTrain, 90),
            "data.train: the training part has 90 tokens in text, fewer than one window of 91 "
            "(sequence_length + 1); use more text or shorter sequences");
  EXPECT_EQ(Refusal(source, Split::kTrain, 89), "no error");
  EXPECT_EQ(
      Refusal(source, Split::kValidation, 89),
      "data.validation: the held-out part has 10 tokens in text, fewer than one window of 90 "
      "(sequence_length + 1); use more text or shorter sequences, a larger data.validation_fraction, or "
      "training.validate_every_steps: 0");
  folder.Write("small", "s");
  EXPECT_EQ(Refusal(source, Split::kValidation, 9).substr(0, 67),
            "data.validation: the held-out part has 1 token in small, fewer than");
}

}  // namespace
}  // namespace tandem::data
