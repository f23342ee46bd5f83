// SPDX-License-Identifier: Apache-2.0
#include "data/indexed_file.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <random>
#include <vector>

namespace tandem::data {
namespace {

// Documents of the same few lengths, and all that are long at one end: where a sequence begins, by number.
std::vector<int64_t> Starts(uint64_t seed, int64_t sequences, int kind) {
  std::mt19937_64 random(seed);
  std::vector<int64_t> starts;
  int64_t at = 0;
  for (int64_t i = 0; i < sequences; ++i) {
    starts.push_back(at);
    const bool is_long = kind == 1 ? i < sequences / 8 : kind == 2 ? i >= sequences - 3 : true;
    at += static_cast<int64_t>(random() % (is_long ? 200 : 2));  // 0 is a document without tokens
  }
  starts.push_back(at);
  return starts;
}

TEST(SequenceFromTest, FindsTheFirstSequenceFromAPosition) {
  for (const int64_t sequences : {0, 1, 2, 3, 50, 3000}) {
    for (int kind = 0; kind < 3; ++kind) {
      std::vector<int64_t> starts = Starts(static_cast<uint64_t>(sequences + kind), sequences, kind);
      const int64_t tokens = starts.back();
      starts.pop_back();
      for (int64_t position = 0; position <= tokens; position += 1 + position % 7) {
        const auto expected = std::lower_bound(starts.begin(), starts.end(), position) - starts.begin();
        ASSERT_EQ(SequenceFrom(sequences, position, tokens, [&](int64_t i) { return starts.at(i); }),
                  expected)
            << sequences << " of kind " << kind << ", position " << position;
      }
    }
  }
}

TEST(SequenceFromTest, LooksNearTheExpectedSequence) {
  constexpr int64_t kSequences = 1'000'000;
  std::vector<int64_t> starts = Starts(1, kSequences, 0);
  const int64_t tokens = starts.back();
  for (int64_t position = 1; position < tokens; position += tokens / 50) {
    int looks = 0;
    const int64_t found = SequenceFrom(kSequences, position, tokens, [&](int64_t i) {
      ++looks;
      return starts.at(i);
    });
    const int64_t near = SequenceNear(kSequences, position, tokens);
    EXPECT_LE(std::abs(found - near), 2000) << position;  // three standard deviations at most
    EXPECT_LE(looks, 20) << position;
  }
}

}  // namespace
}  // namespace tandem::data
