// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <fstream>
#include <map>

#include "tests/parity/expect_same.h"
#include "tests/parity/job.h"
#include "tests/parity/run.h"

namespace tandem::parity {
namespace {

// The same microbatches, shared among any number of ranks.

TEST(SameNumbersTest, OneToFourRanksGiveTheSameBits) {
  const JobOptions options{.steps = 20};
  const JobRun one = ExpectSameBitsOnRanks(options, {2, 3, 4});
  ASSERT_EQ(one.steps.size(), 20u);
  EXPECT_LT(one.steps.back().loss(), one.steps.front().loss());
}

// Windows go over the files' ends; one file is shorter than a sequence, one empty, and whole files are held
// out.
TEST(SameNumbersTest, SeveralFilesGiveAnyRanksTheSameBits) {
  const TemporaryFolder folder;
  const std::map<std::string, int> lines = {{"a", 40}, {"b", 0}, {"c", 1}, {"d", 60}, {"e", 25}};
  for (const auto& [name, count] : lines) {
    std::ofstream file(folder.path() + "/" + name);
    for (int line = 0; line < count; ++line) {
      file << name << line * line << "\n";
    }
  }
  JobOptions options{.steps = 5, .validate_every_steps = 2};
  options.text = folder.path();
  ExpectSameBitsOnRanks(options, {2, 3});
}

// More ranks than the embedding has rows for: some shards hold padding only.
TEST(SameNumbersTest, RanksWithoutAShareOfAUnitParticipate) {
  JobOptions options{.steps = 3, .layers = 1, .hidden = 16, .inner = 16, .heads = 2, .kv_heads = 1};
  options.tied = true;  // the head is then one row of `hidden` elements: one granule
  ExpectSameBitsOnRanks(options, {3, 12});
}

}  // namespace
}  // namespace tandem::parity
