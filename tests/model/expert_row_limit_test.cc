// SPDX-License-Identifier: Apache-2.0
#include "model/expert_row_limit.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <string>
#include <vector>

#include "model/decoder_shapes.h"
#include "tests/model/test_decoders.h"

namespace tandem::model {
namespace {

// Four ranks, two of eight experts each; a token has two, so a rank expects 1 - 6/8 * 5/7 of all tokens.
MixtureOfExperts FourRanks(double most_rows) {
  MixtureOfExperts moe{.ranks = 4, .exact_chunks = true, .most_rows = most_rows};
  moe.router = {.experts = 8, .top_k = 2};
  moe.intermediate_size = 16;
  return moe;
}

std::string ErrorOf(int64_t room, const std::vector<int64_t>& counts) {
  try {
    CheckRoom(FourRanks(1.5), /*tokens=*/28, room, counts);
    return "";
  } catch (const RowsBeyondRoom& error) {
    return error.what();
  }
}

TEST(RowsBeyondRoomTest, TheFullestRankIsReportedWithSufficientRoom) {
  const std::vector<int64_t> counts = {28, 0, 10, 20,  //
                                       28, 0, 10, 20,  //
                                       28, 5, 10, 20,  //
                                       28, 0, 10, 20};
  EXPECT_EQ(ErrorOf(112, counts), "");
  EXPECT_EQ(
      ErrorOf(111, counts),
      "rank 0 of the 4 that share experts is sent 112 rows, and has room for 111 "
      "(parallelism.dispatch.most_rows: 1.5); give 2.16 or more, or omit the key, and submit again (from a "
      "checkpoint: --resume newest)");
  EXPECT_EQ(RowsOfRoom(FourRanks(0), 2.16, 28), 113) << "which would do";
}

TEST(RowsBeyondRoomTest, BuffersHaveRoomForMultiplesOfExpectedRows) {
  DecoderConfig config = test::SmallDecoder(/*tied=*/false);
  const auto shapes = [&](double most_rows) {
    config.moe = FourRanks(most_rows);
    return DecoderShapes(config, {.sequences = 1, .sequence_length = 28}, ComputeType::kFp32,
                         DeviceKind::kCpu);
  };
  EXPECT_EQ(shapes(0).seen, 112);
  EXPECT_EQ(shapes(0).sent_rows(), 112);
  EXPECT_EQ(shapes(1).seen, 52);
  EXPECT_EQ(shapes(1).sent_rows(), 56) << "a token goes to two ranks at most";
  EXPECT_EQ(shapes(1024).seen, 112);
  EXPECT_DOUBLE_EQ(shapes(1).FillOf(52), 1);
  EXPECT_DOUBLE_EQ(shapes(1).FillOf(104), 0.5);
}

}  // namespace
}  // namespace tandem::model
