// SPDX-License-Identifier: Apache-2.0
#include "ops/attention_work.h"

#include <gtest/gtest.h>

#include <utility>
#include <vector>

namespace tandem::ops {
namespace {

constexpr int64_t kGiB = int64_t{1} << 30;

TEST(FlashBackwardPartTest, PartsAreEvenAndBelowTheLimit) {
  for (const int64_t sequences : {1, 2, 3, 7, 16}) {
    for (const int64_t length : {1, 100, 1000, 4096, 8192, 16384, 131072}) {
      for (const int64_t kv_heads : {1, 2, 6, 8, 32}) {
        for (const int64_t group : {1, 3, 4}) {
          const AttentionShape shape{sequences, length, kv_heads * group, kv_heads, 128};
          const AttentionShape part = FlashBackwardPart(shape);
          SCOPED_TRACE(testing::Message() << sequences << " x " << length << ", " << kv_heads << " x "
                                          << group << ": " << part.sequences << ", " << part.kv_heads);
          EXPECT_EQ(part.length, length);
          EXPECT_EQ(part.head_dim, 128);
          EXPECT_EQ(part.heads, part.kv_heads * group);
          ASSERT_GT(part.sequences, 0);
          ASSERT_GT(part.kv_heads, 0);
          EXPECT_EQ(sequences % part.sequences, 0);
          EXPECT_EQ(kv_heads % part.kv_heads, 0);
          EXPECT_TRUE(part.sequences == 1 || part.kv_heads == kv_heads) << "a part is one piece of memory";
          const bool smallest = part.sequences == 1 && part.kv_heads == 1;
          EXPECT_TRUE(smallest || part.sequences * part.heads * length * length * 2 <= kScoreGradientBytes);
        }
      }
    }
  }
}

TEST(AttentionWorkTest, GpuBackwardTakesLittleBeyondTheScoresGradients) {
  for (const AttentionShape& shape :
       std::vector<AttentionShape>{{4, 4096, 32, 8, 128}, {1, 8192, 32, 8, 128}}) {
    const int64_t bytes = AttentionBackwardWorkBytes(DeviceKind::kGpu, shape, 2);
    EXPECT_GT(bytes, kScoreGradientBytes);
    EXPECT_LT(bytes, kScoreGradientBytes + kGiB / 4);
    EXPECT_LT(AttentionWorkBytes(DeviceKind::kGpu, shape, 2), kGiB / 64);
  }
}

TEST(AttentionWorkTest, CpuBackwardKeepsFiveMatricesOfAHead) {
  for (const int64_t element_bytes : {2, 4, 8}) {
    const auto bytes = [&](int64_t length) {
      return AttentionBackwardWorkBytes(DeviceKind::kCpu, AttentionShape{1, length, 8, 2, 64}, element_bytes);
    };
    EXPECT_EQ(bytes(16384) - bytes(4096), 5 * 64 * (16384 - 4096) * (element_bytes == 8 ? 8 : 4));
  }
}

TEST(AttentionWorkTest, GpusHaveRoomForDocumentsStarts) {
  const AttentionShape plain{4, 4096, 32, 8, 128};
  AttentionShape documents = plain;
  documents.documents = true;
  EXPECT_EQ(AttentionWorkBytes(DeviceKind::kGpu, documents, 2),
            AttentionWorkBytes(DeviceKind::kGpu, plain, 2) + 4 * 4096 * 4);
  EXPECT_EQ(AttentionBackwardWorkBytes(DeviceKind::kGpu, documents, 2),
            AttentionBackwardWorkBytes(DeviceKind::kGpu, plain, 2) + 4 * 4096 * 4);
  // Where cuDNN does not compute, and on the CPU, starts are read where they are.
  for (const DeviceKind device : {DeviceKind::kCpu, DeviceKind::kGpu}) {
    EXPECT_EQ(AttentionBackwardWorkBytes(device, documents, 4), AttentionBackwardWorkBytes(device, plain, 4));
  }
}

TEST(AttentionWorkTest, NonRepeatingBackwardTakesTheBatchWithoutScores) {
  // Measured: 257 MiB for 8192 tokens, 514 for twice as many.
  for (const auto& [shape, mebibytes] : std::vector<std::pair<AttentionShape, int64_t>>{
           {{1, 8192, 32, 8, 128, /*repeats=*/false}, 257}, {{4, 4096, 32, 8, 128, false}, 514}}) {
    EXPECT_EQ(FlashBackwardPart(shape).sequences, shape.sequences);
    EXPECT_EQ(FlashBackwardPart(shape).kv_heads, shape.kv_heads);
    const int64_t bytes = AttentionBackwardWorkBytes(DeviceKind::kGpu, shape, 2);
    EXPECT_GE(bytes, mebibytes << 20);
    EXPECT_LE(bytes, (mebibytes << 20) + kFlashSlackBytes);
  }
}

// Measured on an H200 with cuDNN 9.19: what the plans of a part took, less the 256 bytes of each.
TEST(AttentionWorkTest, LongHeadsHaveEnoughForFusedKernels) {
  for (const auto& [shape, bytes] :
       std::vector<std::pair<AttentionShape, int64_t>>{{{1, 8192, 32, 8, 192}, 2248671232},
                                                       {{4, 4096, 32, 8, 192}, 2349858816},
                                                       {{1, 8192, 32, 8, 256}, 2282225664},
                                                       {{4, 4096, 32, 8, 256}, 2416967680},
                                                       {{2, 4096, 128, 128, 192}, 2148532224},
                                                       {{1, 8192, 32, 8, 192, /*repeats=*/false}, 403701760},
                                                       {{4, 4096, 32, 8, 256, false}, 1075838976},
                                                       {{2, 4096, 128, 128, 192, false}, 809500672}}) {
    SCOPED_TRACE(testing::Message() << shape.sequences << " x " << shape.length << ", " << shape.heads << ":"
                                    << shape.kv_heads << " heads of " << shape.head_dim);
    EXPECT_GE(AttentionBackwardWorkBytes(DeviceKind::kGpu, shape, 2), bytes + kFlashSlackBytes);
    EXPECT_GE(AttentionWorkBytes(DeviceKind::kGpu, shape, 2), kFlashSlackBytes);
  }
}

TEST(AttentionWorkTest, LongHeadsHaveEnoughForBlocksOfScores) {
  for (const AttentionShape& shape : std::vector<AttentionShape>{
           {2, 4096, 128, 128, 192}, {1, 16384, 64, 64, 256}, {1, 8192, 8, 1, 192}, {3, 100, 6, 2, 136}}) {
    // No GPU has fused kernels of heads whose dims are no multiple of 8.
    AttentionShape shorter = shape;
    shorter.head_dim -= 2;
    EXPECT_GT(AttentionWorkBytes(DeviceKind::kGpu, shape, 2),
              AttentionWorkBytes(DeviceKind::kGpu, shorter, 2));
    EXPECT_GT(AttentionBackwardWorkBytes(DeviceKind::kGpu, shape, 2),
              AttentionBackwardWorkBytes(DeviceKind::kGpu, shorter, 2));
  }
}

TEST(AttentionWorkTest, NoGpuPathKeepsAllScoresInFloat) {
  const AttentionShape shape{4, 8192, 32, 8, 128};
  for (const int64_t element_bytes : {4, 8}) {
    EXPECT_LE(AttentionBackwardWorkBytes(DeviceKind::kGpu, shape, element_bytes), 2 * kScoreBlockBytes);
  }
  // Converted from bfloat16: columns of one sequence beside the blocks.
  const AttentionShape other{4, 8192, 32, 8, 100};
  EXPECT_LE(AttentionBackwardWorkBytes(DeviceKind::kGpu, other, 2),
            2 * kScoreBlockBytes + 8192 * (2 * 48 + 32) * 100 * 4 + 1024);
}

}  // namespace
}  // namespace tandem::ops
