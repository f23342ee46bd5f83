// SPDX-License-Identifier: Apache-2.0
#include "fsdp/gradient_norm.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <memory>
#include <vector>

#include "fsdp/buffer_bytes.h"
#include "fsdp/shard_kernels.h"
#include "tests/comm/run_thread_ranks.h"

namespace tandem::fsdp {
namespace {

using comm::Communicator;

struct Asked {
  std::vector<UnitNormTerms> units;
  NormRequests requests;
  double num_microbatches = 1;
  double max_norm = 0;
  double targets = 1;
  int64_t uncounted = 0;
};

template <typename T>
device::Memory MemoryOf(T& value) {
  return {.begin = reinterpret_cast<char*>(&value), .bytes = sizeof(T)};
}

UnitNormTerms Terms(double squares, double nonfinite = 0) {
  return {.squares = {.high = squares}, .nonfinite = nonfinite};
}

NormOutcome Agree(Asked asked, Communicator& comm) {
  RunInputs inputs{.requests = asked.requests};
  std::vector<double> outcome(static_cast<size_t>(OutcomeBytes(comm.size())) / sizeof(double));
  GradientNormMemory memory{
      .inputs = MemoryOf(inputs),
      .outcome = {.begin = reinterpret_cast<char*>(outcome.data()), .bytes = OutcomeBytes(comm.size())}};
  for (UnitNormTerms& unit : asked.units) {
    memory.norm_terms.push_back(MemoryOf(unit));
  }
  BindGradientNorm(comm, memory,
                   {.mean = {.num_microbatches = asked.num_microbatches,
                             .targets = asked.targets,
                             .max_norm = asked.max_norm},
                    .uncounted = [&asked] { return asked.uncounted; }},
                   CpuShardKernels())();
  return *memory.outcome.as<NormOutcome>();
}

TEST(GradientNormTest, NormIsTheMeanGradients) {
  comm::RunThreadRanks(2, [](Communicator& comm) {
    const NormOutcome outcome = Agree(
        {.units = comm.rank() == 0 ? std::vector{Terms(20), Terms(5)} : std::vector{Terms(75), Terms(0)},
         .num_microbatches = 5},
        comm);
    EXPECT_EQ(outcome.norm, 2);  // sqrt(100) / 5
    EXPECT_EQ(outcome.clip, 1);
    EXPECT_TRUE(outcome.applied);
  });
}

TEST(GradientNormTest, TheMeanIsOverTargetsThatCount) {
  comm::RunThreadRanks(2, [](Communicator& comm) {
    const Asked all{.units = {Terms(50)}, .num_microbatches = 4, .targets = 8};
    EXPECT_EQ(Agree(all, comm).divisor, 4);
    Asked some = all;
    some.uncounted = comm.rank() == 0 ? 7 : 9;
    const NormOutcome half = Agree(some, comm);
    EXPECT_EQ(half.divisor, 2);
    EXPECT_EQ(half.norm, 5);  // sqrt(100) / 2
    Asked none{.units = {Terms(0)}, .num_microbatches = 4, .max_norm = 1, .targets = 8, .uncounted = 16};
    EXPECT_EQ(Agree(none, comm).divisor, 0);
    EXPECT_FALSE(Agree(none, comm).applied) << "the step is skipped";
    EXPECT_EQ(Agree(none, comm).nonfinite, 0);
  });
}

TEST(GradientNormTest, ClipsOnlyWhatIsLonger) {
  comm::RunThreadRanks(1, [](Communicator& comm) {
    EXPECT_EQ(Agree({.units = {Terms(4)}, .max_norm = 3}, comm).clip, 1);
    EXPECT_DOUBLE_EQ(Agree({.units = {Terms(4)}, .max_norm = 0.5}, comm).clip, 0.5 / (2 + 1e-6));
  });
}

TEST(GradientNormTest, NonfiniteElementsAnywhereAreKnownEverywhere) {
  comm::RunThreadRanks(3, [](Communicator& comm) {
    const double bad = comm.rank() == 1 ? 7 : 0;
    const NormOutcome outcome =
        Agree({.units = {Terms(1, bad), Terms(1), Terms(1, bad)}, .max_norm = 1}, comm);
    EXPECT_FALSE(outcome.applied);
    EXPECT_TRUE(std::isnan(outcome.norm)) << "that of the finite elements is not the norm of the gradient";
    EXPECT_EQ(outcome.nonfinite, 14);
  });
}

TEST(GradientNormTest, SquaresThatOverflowAreNotFinite) {
  comm::RunThreadRanks(2, [](Communicator& comm) {
    EXPECT_FALSE(Agree({.units = {Terms(std::numeric_limits<double>::max())}, .max_norm = 1}, comm).applied);
  });
}

TEST(GradientNormTest, OneRanksRequestsReachAll) {
  comm::RunThreadRanks(3, [](Communicator& comm) {
    const NormRequests mine{.bits = comm.rank() == 2 ? 2u : 0u, .profile = comm.rank() == 1 ? 4711.0 : 0.0};
    const NormOutcome outcome = Agree({.units = {Terms(1)}, .requests = mine}, comm);
    EXPECT_EQ(outcome.requests, 2u);
    EXPECT_EQ(outcome.profile, 4711);
    EXPECT_EQ(Agree({.units = {Terms(1)}}, comm).requests, 0u) << "of the run before";
  });
}

TEST(GradientNormTest, StepAboveTheLimitIsNotApplied) {
  comm::RunThreadRanks(2, [](Communicator& comm) {
    const auto agreed = [&](double limit) {
      const NormRequests mine{.limit = comm.rank() == 1 ? limit : limit / 2};
      return Agree({.units = {Terms(8)}, .requests = mine, .max_norm = 1}, comm);
    };
    EXPECT_FALSE(agreed(3.9).applied);
    EXPECT_EQ(agreed(3.9).norm, 4);
    EXPECT_TRUE(agreed(4).applied);
    EXPECT_TRUE(agreed(0).applied) << "there is none";
  });
}

// A rounded sum depends on how its terms are split between ranks and units; the pair does not.
TEST(GradientNormTest, DoesNotDependOnHowTermsAreSplit) {
  std::vector<double> squares;
  for (int i = 1; i <= 64; ++i) {
    squares.push_back(1.0 / (i * 3.7));
  }
  std::vector<double> norms;
  for (const auto& [ranks, units] : {std::pair<size_t, size_t>{1, 1}, {1, 8}, {4, 1}, {4, 4}}) {
    comm::RunThreadRanks(static_cast<int>(ranks), [&, ranks = ranks, units = units](Communicator& comm) {
      const size_t share = squares.size() / (ranks * units);
      Asked asked{.units = std::vector<UnitNormTerms>(units)};
      for (size_t i = 0; i < share * units; ++i) {
        asked.units[i / share].squares.Add(squares[static_cast<size_t>(comm.rank()) * share * units + i]);
      }
      const double norm = Agree(asked, comm).norm;
      if (comm.rank() == 0) {
        norms.push_back(norm);
      }
    });
  }
  EXPECT_EQ(norms, std::vector<double>(norms.size(), norms[0]));
}

TEST(GradientNormTest, MemoryThatIsTooSmallIsRefused) {
  comm::RunThreadRanks(2, [](Communicator& comm) {
    RunInputs inputs;
    NormOutcome outcome;  // without room for the exchange
    EXPECT_THROW(BindGradientNorm(comm, {.inputs = MemoryOf(inputs), .outcome = MemoryOf(outcome)}, {},
                                  CpuShardKernels()),
                 std::invalid_argument);
  });
}

TEST(BufferBytesTest, TilesOfEveryRankFit) {
  const Layout layout = MakeLayout(
      {{.name = "a", .shape = {1000, 77}}, {.name = "b", .shape = {5}}, {.name = "c", .shape = {333, 301}}},
      4);
  const int64_t length = kGranule * kTileChunks;
  for (int ranks = 1; ranks <= 9; ++ranks) {
    for (int rank = 0; rank < ranks; ++rank) {
      int64_t tiles = 0;
      const Range shard = ShardRange(layout, {.inner = ranks, .inner_rank = rank});
      for (const Piece& piece : PiecesOf(layout, shard)) {
        tiles += (piece.range.end - 1) / length - piece.range.begin / length + 1;
      }
      EXPECT_LE(tiles, MaxTiles(layout, shard.size())) << rank << " of " << ranks;
    }
  }
  EXPECT_EQ(BufferBytesOf(layout, {.inner = 2}, 4).update_norms, 3 * 72);
}

}  // namespace
}  // namespace tandem::fsdp
