// SPDX-License-Identifier: Apache-2.0
#include "trainer/rank_text.h"

#include <gtest/gtest.h>

#include <string>
#include <tuple>
#include <vector>

#include "data/token_source.h"
#include "tests/data/page_cache.h"
#include "tests/data/prepared_folder.h"
#include "tests/parity/job.h"

namespace tandem::parity {
namespace {

// While a rank reads a microbatch, the disk reads its next one: of the same step, and of the one after it.
TEST(RankTextTest, TheNextMicrobatchIsReadAhead) {
  const TemporaryFolder folder;
  JobOptions options{.ranks = 2, .microbatches_per_rank = 2, .steps = 2};
  options.text =
      data::WriteDataset(folder, "set", {std::vector<data::Document>(4000, data::Document(1000, 5))});
  const plan::JobPlan plan = MakeJob(options);
  const trainer::RankText text(plan, /*rank=*/1);
  const std::string bin = options.text + "/tokens-0.bin";
  std::vector<int64_t> tokens(static_cast<size_t>(plan.batch.sequences * text.train().row_elements()));
  const auto first_of = [&](int64_t step, int64_t round) {
    return text.train().Where(step, 2 * round + 1, 4, plan.batch.sequences, /*sequence=*/0, /*token=*/0).byte;
  };
  for (const auto& [step, round, next_step, next_round] :
       {std::tuple(1, 0, 1, 1), std::tuple(1, 1, 2, 0), std::tuple(2, 0, 2, 1)}) {
    SCOPED_TRACE(testing::Message() << "step " << step << ", round " << round);
    if (!data::DropFromCache(bin)) {
      GTEST_SKIP() << "this file system keeps its files in memory";
    }
    EXPECT_FALSE(data::IsCached(bin, first_of(next_step, next_round), 34));
    text.LoadStep(step, round, tokens.data());
    EXPECT_TRUE(data::BecomesCached(bin, first_of(next_step, next_round), 34));
  }
  ASSERT_TRUE(data::DropFromCache(bin));
  text.LoadStep(2, 1, tokens.data());  // the last of the job: nothing follows
}

}  // namespace
}  // namespace tandem::parity
