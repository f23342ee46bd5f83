#include "schedules_v1/block_allocator.h"

#include <gtest/gtest.h>

#include <iostream>
#include <map>
#include <random>

namespace tandem::schedules_v1 {
namespace {

TEST(BlockAllocatorTest, RoundsUpAndPacks) {
  BlockAllocator blocks;
  EXPECT_EQ(blocks.Allocate(1), 0);
  EXPECT_EQ(blocks.Allocate(256), 256);
  EXPECT_EQ(blocks.Allocate(257), 512);
  EXPECT_EQ(blocks.in_use(), 1024);
  EXPECT_EQ(blocks.peak(), 1024);
}

TEST(BlockAllocatorTest, NothingStillHasAnOffsetOfItsOwn) {
  BlockAllocator blocks;
  const int64_t a = blocks.Allocate(0);
  const int64_t b = blocks.Allocate(0);
  EXPECT_NE(a, b);
  blocks.Free(a);
  blocks.Free(b);
  EXPECT_EQ(blocks.in_use(), 0);
}

TEST(BlockAllocatorTest, TakesTheBestFitAndTheLowestAmongEquals) {
  BlockAllocator blocks;
  const int64_t large = blocks.Allocate(1024);
  blocks.Allocate(256);
  const int64_t small = blocks.Allocate(512);
  blocks.Allocate(256);
  const int64_t small_again = blocks.Allocate(512);
  blocks.Allocate(256);
  blocks.Free(large);
  blocks.Free(small_again);
  blocks.Free(small);
  EXPECT_EQ(blocks.Allocate(500), small);
  EXPECT_EQ(blocks.Allocate(500), small_again);
  EXPECT_EQ(blocks.Allocate(500), large);
}

TEST(BlockAllocatorTest, FreeNeighboursMerge) {
  BlockAllocator blocks;
  const int64_t a = blocks.Allocate(256);
  const int64_t b = blocks.Allocate(256);
  const int64_t c = blocks.Allocate(256);
  blocks.Allocate(256);
  blocks.Free(a);
  blocks.Free(c);
  blocks.Free(b);
  EXPECT_EQ(blocks.Allocate(768), a);
  EXPECT_EQ(blocks.peak(), 1024);
}

TEST(BlockAllocatorTest, AFreeBlockAtTheEndGrows) {
  BlockAllocator blocks;
  blocks.Allocate(256);
  const int64_t last = blocks.Allocate(256);
  blocks.Free(last);
  EXPECT_EQ(blocks.Allocate(1024), last);
  EXPECT_EQ(blocks.peak(), 1280);
}

TEST(BlockAllocatorTest, LiveBlocksNeverOverlapAndAllComesBack) {
  const unsigned seed = std::random_device{}();
  std::cout << "seed " << seed << "\n";
  std::mt19937 random(seed);
  BlockAllocator blocks;
  std::map<int64_t, int64_t> live;  // offset → bytes
  for (int i = 0; i < 20000; ++i) {
    if (live.empty() || random() % 5 < 3 - (i > 10000)) {
      const int64_t bytes = random() % 5000 + 1;
      const int64_t offset = blocks.Allocate(bytes);
      ASSERT_EQ(offset % BlockAllocator::kAlignment, 0);
      const auto next = live.lower_bound(offset);
      ASSERT_TRUE(next == live.end() || next->first >= offset + bytes);
      ASSERT_TRUE(next == live.begin() || std::prev(next)->first + std::prev(next)->second <= offset);
      ASSERT_LE(offset + bytes, blocks.peak());
      live.emplace(offset, bytes);
    } else {
      const auto victim = std::next(live.begin(), random() % live.size());
      blocks.Free(victim->first);
      live.erase(victim);
    }
  }
  for (const auto& [offset, bytes] : live) {
    blocks.Free(offset);
  }
  EXPECT_EQ(blocks.in_use(), 0);
  EXPECT_EQ(blocks.Allocate(blocks.peak()), 0) << "what is free is one block again";
}

TEST(BlockAllocatorDeathTest, RefusesToFreeTwice) {
  BlockAllocator blocks;
  const int64_t a = blocks.Allocate(1);
  blocks.Free(a);
  EXPECT_DEATH(blocks.Free(a), "in use");
}

}  // namespace
}  // namespace tandem::schedules_v1
