#include "trainer/gradient_norm.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <vector>

#include "comm/run_thread_ranks.h"
#include "trainer/profiling.h"
#include "trainer/requests.h"

namespace tandem::trainer {
namespace {

using comm::Communicator;

fsdp::NormTerms Terms(double squares, int64_t nonfinite = 0, uint32_t requests = 0) {
  return {.high = squares,
          .nonfinite = static_cast<double>(nonfinite),
          .requests = static_cast<double>(requests)};
}

TEST(GradientNormTest, IsThatOfTheMeanGradientOverAllRanks) {
  comm::RunThreadRanks(2, [](Communicator& comm) {
    const NormResult result =
        ExchangeNorm(Terms(comm.rank() == 0 ? 25 : 75), /*num_microbatches=*/5, /*max_norm=*/0, comm);
    EXPECT_EQ(result.norm, 2);  // sqrt(100) / 5
    EXPECT_EQ(result.clip, 1);
    EXPECT_TRUE(result.finite);
  });
}

TEST(GradientNormTest, ClipsOnlyWhatIsLonger) {
  comm::RunThreadRanks(1, [](Communicator& comm) {
    EXPECT_EQ(ExchangeNorm(Terms(4), 1, 3, comm).clip, 1);
    EXPECT_DOUBLE_EQ(ExchangeNorm(Terms(4), 1, 0.5, comm).clip, 0.5 / (2 + 1e-6));
  });
}

TEST(GradientNormTest, OneNonfiniteElementAnywhereIsKnownEverywhere) {
  comm::RunThreadRanks(3, [](Communicator& comm) {
    const NormResult result = ExchangeNorm(Terms(1, comm.rank() == 1 ? 7 : 0), 1, 1, comm);
    EXPECT_FALSE(result.finite);
    EXPECT_EQ(result.nonfinite, 7);
  });
}

TEST(GradientNormTest, SquaresThatOverflowAreNotFinite) {
  comm::RunThreadRanks(2, [](Communicator& comm) {
    EXPECT_FALSE(ExchangeNorm(Terms(std::numeric_limits<double>::max()), 1, 1, comm).finite);
  });
}

TEST(GradientNormTest, RequestOfOneRankReachesAll) {
  comm::RunThreadRanks(3, [](Communicator& comm) {
    const uint32_t mine = comm.rank() == 2 ? uint32_t{kRequestStop} : 0;
    EXPECT_EQ(ExchangeNorm(Terms(1, 0, mine), 1, 1, comm).requests, uint32_t{kRequestStop});
  });
}

TEST(GradientNormTest, AProfileThatOneRankWantsIsKnownToAll) {
  comm::RunThreadRanks(3, [](comm::Communicator& comm) {
    const ProfileSteps asked{.id = ProfileSteps::kMaxId, .steps = ProfileSteps::kMaxSteps, .alone = true};
    const ProfileSteps mine = comm.rank() == 1 ? asked : ProfileSteps{};
    EXPECT_EQ(ProfileSteps::FromNumber(ExchangeNorm({.profile = mine.ToNumber()}, 1, 1, comm).profile),
              asked);
    EXPECT_EQ(ExchangeNorm({}, 1, 1, comm).profile, 0);
  });
}

// A rounded sum depends on how its terms are split between ranks; the pair does not.
TEST(GradientNormTest, DoesNotDependOnHowTermsAreSplit) {
  std::vector<double> squares;
  for (int i = 1; i <= 64; ++i) {
    squares.push_back(1.0 / (i * 3.7));
  }
  double norms[2] = {};
  const int ranks[2] = {1, 4};
  for (int run = 0; run < 2; ++run) {
    comm::RunThreadRanks(ranks[run], [&](Communicator& comm) {
      const size_t share = squares.size() / comm.size();
      fsdp::DoubleDouble own;
      for (size_t i = 0; i < share; ++i) {
        own.Add(squares[comm.rank() * share + i]);
      }
      const double norm = ExchangeNorm({.high = own.high, .low = own.low}, 1, 1, comm).norm;
      if (comm.rank() == 0) {
        norms[run] = norm;
      }
    });
  }
  EXPECT_EQ(norms[0], norms[1]);
}

}  // namespace
}  // namespace tandem::trainer
