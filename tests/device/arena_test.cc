#include "device/arena.h"

#include <ATen/core/Tensor.h>
#include <ATen/ops/isnan.h>
#include <gtest/gtest.h>

#include <iostream>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "device/device.h"

namespace tandem::device {
namespace {

int64_t NumNan(const at::Tensor& tensor) { return at::isnan(tensor).sum().item<int64_t>(); }

TEST(ArenaTest, TensorsAreAlignedContiguousAndApart) {
  const std::unique_ptr<Device> device = MakeCpuDevice();
  Arena arena(*device, int64_t{1} << 20);
  at::Tensor a = arena.Allocate({3, 5}, at::kFloat);
  at::Tensor b = arena.Allocate({7}, at::kDouble);
  at::Tensor c = arena.Allocate({2, 3}, at::kLong);
  for (const at::Tensor& tensor : {a, b, c}) {
    EXPECT_EQ(reinterpret_cast<uintptr_t>(tensor.data_ptr()) % schedules_v1::BlockAllocator::kAlignment, 0u);
    EXPECT_TRUE(tensor.is_contiguous());
  }
  a.fill_(1);
  b.fill_(2);
  c.fill_(3);
  EXPECT_EQ(a.sum().item<float>(), 15);
  EXPECT_EQ(b.sum().item<double>(), 14);
  EXPECT_EQ(c.sum().item<int64_t>(), 18);
}

TEST(ArenaTest, FreedMemoryIsGivenOutAgainAndThePeakStays) {
  const std::unique_ptr<Device> device = MakeCpuDevice();
  Arena arena(*device, 1024);
  const at::Tensor a = arena.Allocate({128}, at::kFloat);
  const at::Tensor b = arena.Allocate({128}, at::kFloat);
  EXPECT_EQ(arena.in_use(), 1024);
  void* const address = a.data_ptr();
  arena.Free(a);
  EXPECT_EQ(arena.in_use(), 512);
  EXPECT_EQ(arena.Allocate({100}, at::kFloat).data_ptr(), address);
  EXPECT_EQ(arena.peak(), 1024);
  EXPECT_EQ(arena.capacity(), 1024);
}

TEST(ArenaTest, ViewsOfAllocatedTensorsFreeTheirBlock) {
  const std::unique_ptr<Device> device = MakeCpuDevice();
  Arena arena(*device, 1024);
  const at::Tensor a = arena.Allocate({4, 4}, at::kFloat);
  arena.Free(a.view({16}));
  EXPECT_EQ(arena.in_use(), 0);
}

TEST(ArenaTest, ExhaustionListsWhatIsInUse) {
  const std::unique_ptr<Device> device = MakeCpuDevice();
  Arena arena(*device, 1024, /*poison=*/true);
  const at::Tensor a = arena.Allocate({3, 50}, at::kFloat);
  try {
    arena.Allocate({100}, at::kDouble);
    FAIL() << "accepted";
  } catch (const ArenaExhausted& error) {
    EXPECT_EQ(std::string(error.what()),
              "arena exhausted: 800 bytes for Double [100] do not fit; capacity 1024, in use 768 in 1 blocks "
              "(offset, bytes, what):\n  0  600  Float [3, 50]");
  }
  EXPECT_NO_THROW(arena.Allocate({64}, at::kFloat));
  EXPECT_THROW(arena.Allocate({64}, at::kFloat), ArenaExhausted);
  EXPECT_THROW(arena.Allocate({1}, at::kFloat), ArenaExhausted);
}

// Early, and not by the kernel in the middle of the first step.
TEST(ArenaTest, MoreThanTheMachineHasIsRefusedWithBothNumbers) {
  const std::unique_ptr<Device> device = MakeCpuDevice();
  const int64_t bytes = int64_t{1} << 45;
  try {
    Arena arena(*device, bytes);
    FAIL() << "32 TiB were promised";
  } catch (const OutOfMemory& error) {
    EXPECT_NE(std::string(error.what()).find("this rank needs " + std::to_string(bytes)), std::string::npos)
        << error.what();
  }
}

TEST(ArenaTest, FreeOfSomethingElseIsRefused) {
  const std::unique_ptr<Device> device = MakeCpuDevice();
  Arena arena(*device, 1024);
  const at::Tensor a = arena.Allocate({4}, at::kFloat);
  EXPECT_THROW(arena.Free(a.narrow(0, 1, 3)), std::logic_error);
  arena.Free(a);
  EXPECT_THROW(arena.Free(a), std::logic_error);
}

TEST(ArenaTest, PoisonShowsUseBeforeWriteAndAfterFree) {
  const std::unique_ptr<Device> device = MakeCpuDevice();
  Arena arena(*device, 1024, /*poison=*/true);
  at::Tensor a = arena.Allocate({16}, at::kFloat);
  EXPECT_EQ(NumNan(a), 16);
  a.zero_();
  const at::Tensor later = a;
  arena.Free(a);
  EXPECT_EQ(NumNan(later), 16);
}

TEST(ArenaTest, RandomTrafficNeverOverlaps) {
  const uint64_t seed = std::random_device{}();
  std::cout << "seed " << seed << "\n";
  std::mt19937_64 random(seed);
  const std::unique_ptr<Device> device = MakeCpuDevice();
  Arena arena(*device, int64_t{1} << 22);
  std::vector<std::pair<at::Tensor, int64_t>> live;
  for (int step = 0; step < 5000; ++step) {
    if (live.size() < 40 && random() % 2 == 0) {
      at::Tensor tensor = arena.Allocate({static_cast<int64_t>(random() % 2000)}, at::kLong);
      tensor.fill_(step);
      live.emplace_back(tensor, step);
    } else if (!live.empty()) {
      const size_t index = random() % live.size();
      ASSERT_TRUE(live[index].first.eq(live[index].second).all().item<bool>()) << "seed " << seed;
      arena.Free(live[index].first);
      live.erase(live.begin() + static_cast<int64_t>(index));
    }
  }
}

}  // namespace
}  // namespace tandem::device
