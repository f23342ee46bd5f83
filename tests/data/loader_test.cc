// SPDX-License-Identifier: Apache-2.0
#include "data/loader.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <set>
#include <thread>

#include "tests/data/text_folder.h"

namespace tandem::data {
namespace {

// 40 files; every window is unlike every other, since each token tells its position in two bytes of text.
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
    corpus_ =
        std::make_shared<const Corpus>(CorpusSource{.train = folder_.path(), .validation_fraction = 0.1});
  }

  static std::vector<int64_t> Batch(const Loader& loader, int64_t step, int64_t microbatch, int64_t count,
                                    int64_t sequences) {
    std::vector<int64_t> tokens(sequences * (kLength + 1));
    loader.Fill(step, microbatch, count, sequences, tokens.data());
    return tokens;
  }

  static constexpr int64_t kLength = 15;
  TextFolder folder_;
  std::shared_ptr<const Corpus> corpus_;
};

TEST_F(LoaderTest, AnEpochSeesEveryWindowOnce) {
  const Loader loader(corpus_, Split::kTrain, /*seed=*/1, kLength);
  const int64_t windows = loader.num_windows();
  EXPECT_EQ(windows, corpus_->num_tokens(Split::kTrain) / (kLength + 1));
  for (int64_t epoch = 0; epoch < 3; ++epoch) {
    std::set<int64_t> seen;
    for (int64_t n = 0; n < windows; ++n) {
      seen.insert(loader.Window(epoch * windows + n));
    }
    EXPECT_EQ(seen.size(), windows);
    EXPECT_EQ(*seen.begin(), 0);
    EXPECT_EQ(*seen.rbegin(), windows - 1);
  }
}

TEST_F(LoaderTest, EveryEpochAndSeedHasItsOrder) {
  const Loader one(corpus_, Split::kTrain, 1, kLength);
  const Loader two(corpus_, Split::kTrain, 2, kLength);
  const auto windows = [](const Loader& loader, int64_t epoch) {
    std::vector<int64_t> result;
    for (int64_t n = 0; n < loader.num_windows(); ++n) {
      result.push_back(loader.Window(epoch * loader.num_windows() + n));
    }
    return result;
  };
  EXPECT_NE(windows(one, 0), windows(one, 1));
  EXPECT_NE(windows(one, 0), windows(two, 0));
  EXPECT_EQ(windows(one, 1), windows(Loader(corpus_, Split::kTrain, 1, kLength), 1));
}

TEST_F(LoaderTest, TheDataOfAStepDoNotDependOnHowTheyAreShared) {
  const Loader loader(corpus_, Split::kTrain, 1, kLength);
  for (const int64_t step : {1, 2, 500}) {
    std::vector<int64_t> whole(12 * (kLength + 1));
    loader.Fill(step, 0, 1, 12, whole.data());
    for (const int64_t microbatches : {2, 3, 4, 6, 12}) {
      std::vector<int64_t> parts;
      for (int64_t microbatch = 0; microbatch < microbatches; ++microbatch) {
        const std::vector<int64_t> part = Batch(loader, step, microbatch, microbatches, 12 / microbatches);
        parts.insert(parts.end(), part.begin(), part.end());
      }
      EXPECT_EQ(parts, whole) << step << " " << microbatches;
    }
  }
}

TEST_F(LoaderTest, AFreshLoaderGoesOnWhereAnotherWouldBe) {
  const Loader first(corpus_, Split::kTrain, 9, kLength);
  for (int64_t step = 1; step < 50; ++step) {
    Batch(first, step, 0, 2, 3);
  }
  EXPECT_EQ(Batch(first, 50, 1, 2, 3), Batch(Loader(corpus_, Split::kTrain, 9, kLength), 50, 1, 2, 3));
}

TEST_F(LoaderTest, HeldOutTextNeverAppearsInTraining) {
  const Loader train(corpus_, Split::kTrain, 1, kLength);
  std::set<std::vector<int64_t>> seen;
  for (int64_t n = 0; n < train.num_windows(); ++n) {
    seen.insert(Batch(train, n + 1, 0, 1, 1));
  }
  EXPECT_EQ(seen.size(), train.num_windows());
  const Loader held(corpus_, Split::kValidation, 1, kLength);
  for (int64_t n = 0; n < held.num_windows(); ++n) {
    EXPECT_EQ(seen.count(Batch(held, 1, n, held.num_windows(), 1)), 0);
  }
}

TEST_F(LoaderTest, ValidationIsTheSameInEveryStep) {
  const Loader held(corpus_, Split::kValidation, 1, kLength);
  EXPECT_EQ(Batch(held, 1, 1, 4, 2), Batch(held, 100, 1, 4, 2));
  EXPECT_EQ(Batch(held, 1, 1, 4, 2), Batch(Loader(corpus_, Split::kValidation, 2, kLength), 1, 1, 8, 2));
  std::vector<int64_t> start(2 * (kLength + 1));
  corpus_->Read(Split::kValidation, 0, 2 * (kLength + 1), start.data());
  EXPECT_EQ(Batch(held, 7, 0, 4, 2), start);
}

TEST_F(LoaderTest, ThreadsShareALoader) {
  const Loader loader(corpus_, Split::kTrain, 1, kLength);
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

TEST_F(LoaderTest, TooLittleTextIsAnErrorWithNumbers) {
  TextFolder folder;
  folder.Write("text", std::string(100, 'x'));
  const auto corpus =
      std::make_shared<const Corpus>(CorpusSource{.train = folder.path(), .validation_fraction = 0.1});
  const auto error = [&](Split split, int64_t length) -> std::string {
    try {
      Loader loader(corpus, split, 1, length);
    } catch (const DataError& e) {
      return e.what();
    }
    return "no error";
  };
  EXPECT_EQ(error(Split::kTrain, 90),
            "data.train: the training part has 90 tokens in 1 file, fewer than one window of 91 "
            "(sequence_length + 1); use more text or shorter sequences");
  EXPECT_EQ(error(Split::kTrain, 89), "no error");
  EXPECT_EQ(
      error(Split::kValidation, 89),
      "data.validation: the held-out part has 10 tokens in 1 file, fewer than one window of 90 "
      "(sequence_length + 1); use more text or shorter sequences, a larger data.validation_fraction, or "
      "training.validate_every_steps: 0");
}

}  // namespace
}  // namespace tandem::data
