// SPDX-License-Identifier: Apache-2.0
#include "trainer/batch_reader.h"

#include <gtest/gtest.h>

#include <future>
#include <stdexcept>
#include <string>
#include <vector>

#include "trainer/failure.h"

namespace tandem::trainer {
namespace {

TEST(BatchReaderTest, ReadsTheNextRunAhead) {
  BatchReader reader;
  std::vector<int64_t> memory(4);
  const auto load = [](int64_t run) {
    return [run](int microbatch, int64_t* tokens) { *tokens = 10 * run + microbatch; };
  };
  reader.Request(0, {&memory[0], &memory[1]}, load(0));
  reader.Request(1, {&memory[2], &memory[3]}, load(1));
  reader.Await(1, 1);  // run 0 has not been waited for
  EXPECT_EQ(memory, (std::vector<int64_t>{0, 1, 10, 11}));
  reader.Await(0, 1);
}

TEST(BatchReaderTest, MicrobatchesArriveOneByOne) {
  BatchReader reader;
  std::promise<void> go_on;
  std::vector<int64_t> memory(2);
  reader.Request(0, {&memory[0], &memory[1]},
                 [&, may = go_on.get_future().share()](int microbatch, int64_t* tokens) {
                   if (microbatch == 1) {
                     may.wait();
                   }
                   *tokens = 7;
                 });
  reader.Await(0, 0);
  EXPECT_EQ(memory[0], 7);
  go_on.set_value();
  reader.Await(0, 1);
  EXPECT_EQ(memory[1], 7);
}

TEST(BatchReaderTest, CancelEndsASlowWait) {
  std::promise<void> go_on;
  std::promise<void> waiting;
  std::vector<int64_t> memory(1);
  BatchReader reader;
  reader.Request(0, {&memory[0]}, [&, may = go_on.get_future().share()](int, int64_t*) {
    waiting.set_value();
    may.wait();
  });
  auto waiter = std::async(std::launch::async, [&] { reader.Await(0, 0); });
  waiting.get_future().wait();
  reader.Cancel();
  EXPECT_THROW(waiter.get(), std::runtime_error);
  EXPECT_THROW(reader.Await(0, 0), std::runtime_error);
  go_on.set_value();
}

TEST(BatchReaderTest, ErrorReachesThatAndLaterWaits) {
  BatchReader reader;
  std::vector<int64_t> memory(3);
  int calls = 0;
  reader.Request(0, {&memory[0], &memory[1], &memory[2]}, [&](int microbatch, int64_t*) {
    ++calls;
    if (microbatch == 1) {
      throw std::runtime_error("no text");
    }
  });
  EXPECT_THROW(reader.Await(0, 1), std::runtime_error);
  EXPECT_THROW(reader.Await(0, 2), std::runtime_error);
  reader.Await(0, 0);
  EXPECT_EQ(calls, 2);
}

TEST(BatchReaderTest, EndsWithUntakenRequests) {
  std::vector<int64_t> memory(100);
  BatchReader reader;
  std::vector<int64_t*> destinations;
  for (int64_t& element : memory) {
    destinations.push_back(&element);
  }
  reader.Request(0, destinations, [](int, int64_t*) {});
}

// On the host, so that it is the same on every device, and without waiting for one.
TEST(CheckTokensTest, TokenOutsideTheVocabularyIsNamed) {
  for (const int64_t id : {int64_t{256}, int64_t{-1}}) {
    std::vector<int64_t> tokens(2 * 17, 7);
    tokens[17 + 3] = id;
    try {
      CheckTokens({.sequences = 2, .sequence_length = 16}, 256, tokens.data(),
                  [](int64_t sequence, int64_t token) {
                    return data::Place{.file = "/data/0.bin", .byte = 100 * sequence + token};
                  });
      FAIL() << "the token was taken";
    } catch (const UserError& error) {
      EXPECT_EQ(error.what(), "data: /data/0.bin has token id " + std::to_string(id) +
                                  " at byte 103; a model with model.vocab_size 256 takes ids "
                                  "from 0 to 255: use the tokenizer that the vocabulary belongs to");
    }
  }
}

data::Place Nowhere(int64_t, int64_t) { return {}; }

// Behind the tokens of a sequence are its documents' starts, which are no ids.
TEST(CheckTokensTest, WhereDocumentsBeginIsNoToken) {
  const model::BatchShape batch{.sequences = 2, .sequence_length = 300, .packs_documents = true};
  std::vector<int64_t> rows(2 * batch.columns(), 7);
  for (int sequence = 0; sequence < 2; ++sequence) {
    rows[sequence * batch.columns() + 301 + 299] = 299;
  }
  CheckTokens(batch, 256, rows.data(), Nowhere);
  rows[batch.columns() + 300] = 299;
  EXPECT_THROW(CheckTokens(batch, 256, rows.data(), Nowhere), UserError);
}

}  // namespace
}  // namespace tandem::trainer
