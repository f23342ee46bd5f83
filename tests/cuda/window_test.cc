// SPDX-License-Identifier: Apache-2.0
#include <ATen/core/Tensor.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/full.h>
#include <gtest/gtest.h>

#include <iostream>
#include <memory>
#include <string>
#include <vector>

#include "comm/communicators.h"
#include "comm/nccl_factory.h"
#include "device/cuda/device.h"
#include "device/static_arena.h"
#include "tests/comm/memory_store.h"
#include "tests/comm/run_thread_ranks.h"
#include "tests/device/tensors.h"

namespace tandem::comm {
namespace {

// One arena, registered whole; gathers and all-to-alls at several offsets give the right bytes whether or not
// NCCL makes a window.
void MoveInAnArena(bool registrable) {
  const int ranks = std::min(2, device::CountCudaDevices());
  const auto store = std::make_shared<MemoryStore>();
  RunThreadRanks(ranks, [&](int rank) {
    const auto device = device::MakeCudaDevice(rank);
    const auto factory = MakeNcclFactory({.store = store, .timeout = absl::Minutes(1)}, rank);
    constexpr int64_t kBytes = int64_t{64} << 20;
    const device::StaticArena arena(*device,
                                    registrable ? factory->Reserve(*device, kBytes) : device->Reserve(kBytes),
                                    /*fill_with_nan=*/true);
    Communicators communicators(
        *factory, {{.group = "dp_cp", .prefix = "g/0/", .rank = rank, .size = ranks}},
        {{.group = "dp_cp", .purpose = "gather", .window = true}, {.group = "dp_cp", .purpose = "reduce"}});
    const std::vector<std::string> refused = communicators.RegisterWindows(arena.region());
    for (const std::string& each : refused) {
      std::cout << each << "\n";
    }
    EXPECT_TRUE(refused.empty() || !registrable || ranks == 1)
        << "memory of the communicator's own allocator";
    const auto stream = device->MakeStream("gather", device::StreamPriority::kNormal, device::StreamError());
    for (const int64_t offset : {int64_t{0}, int64_t{3} << 20, int64_t{40} << 20}) {
      constexpr int64_t kElements = 100'000;
      at::Tensor mine = device::TensorAt(*device, arena, offset, {kElements}, at::kFloat);
      at::Tensor all =
          device::TensorAt(*device, arena, offset + (int64_t{2} << 20), {ranks * kElements}, at::kFloat);
      mine.copy_(at::arange(kElements, at::kFloat).add(rank));
      device->Synchronize();
      stream->Enqueue([&] { communicators[0].AllGather(device::MemoryOf(mine), device::MemoryOf(all)); });
      stream->Synchronize();
      for (int peer = 0; peer < ranks; ++peer) {
        EXPECT_TRUE(at::equal(all.narrow(0, peer * kElements, kElements).cpu(),
                              at::arange(kElements, at::kFloat).add(peer)))
            << "at " << offset << " from " << peer;
      }
      for (const size_t use : {0, 1}) {  // with a window, and without
        at::Tensor slices =
            device::TensorAt(*device, arena, offset + (int64_t{16} << 20), {ranks * kElements}, at::kFloat);
        slices.fill_(-1);
        device->Synchronize();
        stream->Enqueue(
            [&] { communicators[use].AllToAll(device::MemoryOf(all), device::MemoryOf(slices)); });
        stream->Synchronize();
        // Everyone had gathered the same.
        EXPECT_TRUE(at::equal(slices.cpu(), at::arange(kElements, at::kFloat).add(rank).repeat({ranks})))
            << "at " << offset << ", use " << use;
      }
    }
  });
}

TEST(WindowTest, CollectivesOnRegisteredArenasMoveTheRightBytes) { MoveInAnArena(/*registrable=*/true); }

TEST(WindowTest, UnregistrableMemoryIsRefusedByNameAndWorks) { MoveInAnArena(/*registrable=*/false); }

TEST(WindowTest, TooMuchMemoryIsOutOfMemory) {
  const auto device = device::MakeCudaDevice(0);
  const auto factory = MakeNcclFactory({.timeout = absl::Minutes(1)}, 0);
  EXPECT_THROW(factory->Reserve(*device, int64_t{1} << 50), device::OutOfMemory);
  EXPECT_EQ(factory->Reserve(*device, 1 << 20)->bytes(), 1 << 20);
}

}  // namespace
}  // namespace tandem::comm
