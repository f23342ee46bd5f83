// SPDX-License-Identifier: Apache-2.0
#include <ATen/core/Tensor.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/full.h>
#include <ATen/ops/zeros.h>
#include <ATen/ops/zeros_like.h>
#include <c10/cuda/CUDAStream.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <limits>
#include <thread>

#include "absl/synchronization/notification.h"
#include "comm/nccl_factory.h"
#include "device/cuda/device.h"
#include "tests/comm/memory_store.h"
#include "tests/comm/run_thread_ranks.h"
#include "tests/cuda/spin.h"
#include "tests/device/tensors.h"

namespace tandem::comm {
namespace {

// Ranks are threads, each with its own GPU.

constexpr absl::Duration kTimeout = absl::Seconds(60);

int Gpus() { return device::CountCudaDevices(); }

std::unique_ptr<Communicator> Join(Store& store, int rank, int size, absl::Duration timeout = kTimeout) {
  return MakeNcclCommunicator("test", store, "t", rank, size, rank, timeout);
}

// What rank `rank` sends: its numbers differ from the others'.
at::Tensor Numbers(int64_t count, int rank) {
  return at::arange(count, at::kLong)
      .add(1000 * rank)
      .to(at::kFloat)
      .to(at::Device(at::kCUDA, rank < 0 ? 0 : rank));
}

void ExpectTheRightBytes(Communicator& comm, device::Stream& stream) {
  const int ranks = comm.size();
  for (const int64_t count : {0, 3, 40'000}) {
    const auto options = at::TensorOptions().dtype(at::kFloat).device(at::kCUDA, comm.rank());
    const at::Tensor mine = Numbers(count, comm.rank());
    at::Tensor gathered = at::zeros({ranks * count}, options);
    const at::Tensor slices = Numbers(ranks * count, comm.rank());
    at::Tensor at_root = at::full({comm.rank() == 0 ? ranks * count : 2}, -1, options);
    at::Tensor there = at::zeros({ranks * count}, options);
    at::Tensor back = at::zeros({ranks * count}, options);
    mine.sum().item<float>();  // what the default stream did is done
    back.sum().item<float>();
    stream.Enqueue([&] {
      comm.AllGather(device::MemoryOf(mine), device::MemoryOf(gathered));
      comm.Gather(device::MemoryOf(mine), device::MemoryOf(at_root));
      comm.AllToAll(device::MemoryOf(slices), device::MemoryOf(there));
      comm.AllToAll(device::MemoryOf(there), device::MemoryOf(back));
    });
    stream.Synchronize();
    for (int rank = 0; rank < ranks; ++rank) {
      const at::Tensor theirs = at::arange(count, at::kLong).add(1000 * rank).to(at::kFloat);
      EXPECT_TRUE(gathered.cpu().narrow(0, rank * count, count).equal(theirs)) << count;
      const at::Tensor slice = at::arange(ranks * count, at::kLong).add(1000 * rank).to(at::kFloat);
      EXPECT_TRUE(
          there.cpu().narrow(0, rank * count, count).equal(slice.narrow(0, comm.rank() * count, count)));
    }
    EXPECT_TRUE(comm.rank() == 0 ? at_root.equal(gathered) : at_root.equal(at::full({2}, -1, options)));
    EXPECT_TRUE(back.equal(slices)) << "twice is the identity";
  }
  EXPECT_NO_THROW(comm.CheckPending());
  EXPECT_EQ(comm.num_collectives(), 12u);
  EXPECT_EQ(comm.num_ended(), 12u);
}

// NCCL itself refuses what it cannot do: so an option has got there.
TEST(NcclCommunicatorTest, OptionsReachGroupsAndClones) {
  if (Gpus() == 0) {
    GTEST_SKIP() << "needs a GPU";
  }
  const auto device = device::MakeCudaDevice(0);
  const auto make = [](const parallel::GroupOptions& options) {
    MemoryStore store;
    return MakeNcclCommunicator("test", store, "t", 0, 1, 0, kTimeout, options);
  };
  const parallel::GroupOptions good{
      .cga_cluster_size = 2, .min_ctas = 2, .max_ctas = 4, .net_name = "Socket"};
  const parallel::GroupOptions bad{.min_ctas = 8, .max_ctas = 4};
  EXPECT_NO_THROW(make({.min_ctas = 8}));
  EXPECT_NO_THROW(make({.max_ctas = 1}));
  const auto group = make(good);
  const auto clone = CloneNcclCommunicator("clone", *group, good);
  for (Communicator* comm : {group.get(), clone.get()}) {
    const auto stream = device->MakeStream("a", device::StreamPriority::kHigh, device::StreamError());
    ExpectTheRightBytes(*comm, *stream);
  }
  EXPECT_THROW(make(bad), CommError);
  EXPECT_THROW(CloneNcclCommunicator("clone", *group, bad), CommError);
}

TEST(NcclCommunicatorTest, GroupsAndTheirClonesMoveTheRightBytes) {
  for (int ranks = 1; ranks <= Gpus(); ranks *= 2) {
    SCOPED_TRACE(ranks);
    MemoryStore store;
    RunThreadRanks(ranks, [&](int rank) {
      const auto device = device::MakeCudaDevice(rank);
      const auto comm = Join(store, rank, ranks);
      const auto clone = CloneNcclCommunicator("clone", *comm);
      EXPECT_EQ(clone->name(), "clone");
      EXPECT_EQ(clone->rank(), rank);
      const auto stream = device->MakeStream("a", device::StreamPriority::kNormal, device::StreamError());
      const auto other = device->MakeStream("b", device::StreamPriority::kNormal, device::StreamError());
      ExpectTheRightBytes(*comm, *stream);
      ExpectTheRightBytes(*clone, *other);
    });
  }
}

TEST(NcclCommunicatorTest, RanksOfALinkSendToEachOther) {
  if (Gpus() < 2) {
    GTEST_SKIP() << "needs two GPUs";
  }
  MemoryStore store;
  RunThreadRanks(2, [&](int rank) {
    const auto device = device::MakeCudaDevice(rank);
    const auto link =
        MakeNcclCommunicator("pp/0-1/values", store, "l", rank, 2, rank, kTimeout, {.max_ctas = 2});
    const auto stream = device->MakeStream("a", device::StreamPriority::kNormal, device::StreamError());
    for (const int sender : {0, 1}) {
      for (const int64_t count : {0, 3, 40'000}) {
        const at::Tensor sent = Numbers(count, sender).to(at::Device(at::kCUDA, rank));
        at::Tensor received = at::zeros_like(sent);
        received.sum().item<float>();  // what the default stream did is done
        stream->Enqueue([&] {
          if (rank == sender) {
            link->Send(device::MemoryOf(sent));
          } else {
            link->Receive(device::MemoryOf(received));
          }
        });
        stream->Synchronize();
        EXPECT_TRUE(rank == sender || received.equal(sent)) << count;
      }
    }
    EXPECT_NO_THROW(link->CheckPending());
    EXPECT_EQ(link->num_collectives(), 6u);
    EXPECT_EQ(link->num_ended(), 6u);
  });
}

// One of NCCL's takes some 400 MiB of the GPU.
TEST(NcclFactoryTest, OneRankMovesBytesAndTakesNoMemory) {
  if (Gpus() == 0) {
    GTEST_SKIP() << "needs a GPU";
  }
  const auto device = device::MakeCudaDevice(0);
  const auto stream = device->MakeStream("a", device::StreamPriority::kNormal, device::StreamError());
  // The memory is that of the whole GPU. The first round loads kernels; in others, another process may take
  // some meanwhile, but not in all of them.
  int64_t least = std::numeric_limits<int64_t>::max();
  for (int round = 0; round < 6; ++round) {
    const int64_t before = device->memory_use().used;
    const auto factory = MakeNcclFactory({.store = nullptr, .data_address = "", .timeout = kTimeout}, 0);
    const auto comm = factory->Make({.group = "test", .prefix = "t"}, nullptr);
    const auto clone = factory->Make({.group = "clone", .prefix = "c", .clone_of = "test"}, comm.get());
    EXPECT_EQ(clone->name(), "clone");
    for (Communicator* each : {comm.get(), clone.get()}) {
      ExpectTheRightBytes(*each, *stream);
    }
    const int64_t more = device->memory_use().used - before;
    least = round == 0 ? least : std::min(least, more);
  }
  EXPECT_LT(least, int64_t{64} << 20);
}

TEST(NcclCommunicatorTest, CreationWithoutAllRanksEndsAtTheDeadline) {
  MemoryStore store;
  const auto device = device::MakeCudaDevice(0);
  const auto start = std::chrono::steady_clock::now();
  try {
    Join(store, 0, 2, absl::Seconds(3));
    FAIL() << "rank 1 never came";
  } catch (const CommError& error) {
    EXPECT_EQ(std::string(error.what()), "group test rank 0 creation: not all ranks took part within 3s");
  }
  EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(8));
}

TEST(NcclCommunicatorTest, AFirstCollectiveAloneEndsAtTheDeadline) {
  if (Gpus() < 2) {
    GTEST_SKIP() << "needs two GPUs";
  }
  MemoryStore store;
  absl::Notification has_ended;
  RunThreadRanks(2, [&](int rank) {
    const auto device = device::MakeCudaDevice(rank);
    const auto comm = Join(store, rank, 2, absl::Seconds(3));
    if (rank == 1) {
      has_ended.WaitForNotification();  // and never calls it
      return;
    }
    const at::Tensor mine = at::full({8}, 1, at::TensorOptions().dtype(at::kFloat).device(at::kCUDA, rank));
    at::Tensor all = at::zeros({16}, mine.options());
    std::string told;
    try {
      comm->AllGather(device::MemoryOf(mine), device::MemoryOf(all));
    } catch (const CommError& error) {
      told = error.what();
    }
    EXPECT_EQ(told, "group test rank 0 AllGather: not all ranks took part within 3s");
    const auto start = std::chrono::steady_clock::now();
    comm->Abort();
    EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(2));
    EXPECT_THROW(comm->AllGather(device::MemoryOf(mine), device::MemoryOf(all)), CommError);
    has_ended.Notify();
  });
}

TEST(NcclCommunicatorTest, AbortEndsPendingCollectivesAndFailsLaterCalls) {
  if (Gpus() < 2) {
    GTEST_SKIP() << "needs two GPUs";
  }
  MemoryStore store;
  RunThreadRanks(2, [&](int rank) {
    const auto device = device::MakeCudaDevice(rank);
    const auto comm = Join(store, rank, 2);
    const auto stream = device->MakeStream("a", device::StreamPriority::kNormal, device::StreamError());
    const at::Tensor mine = at::full({8}, 1, at::TensorOptions().dtype(at::kFloat).device(at::kCUDA, rank));
    at::Tensor all = at::zeros({16}, mine.options());
    stream->Enqueue([&] { comm->AllGather(device::MemoryOf(mine), device::MemoryOf(all)); });
    stream->Synchronize();
    if (rank == 1) {
      std::this_thread::sleep_for(std::chrono::seconds(2));  // and never comes to the second one
      return;
    }
    stream->Enqueue([&] { comm->AllGather(device::MemoryOf(mine), device::MemoryOf(all)); });
    const device::Event end = stream->Record();
    std::thread other([&] {
      std::this_thread::sleep_for(std::chrono::milliseconds(200));
      comm->CheckPending();
      EXPECT_EQ(comm->num_collectives(), 2u);
      EXPECT_EQ(comm->num_ended(), 1u);
      comm->Abort();
    });
    other.join();
    const auto start = std::chrono::steady_clock::now();
    while (!end.state()->IsReached() && std::chrono::steady_clock::now() - start < std::chrono::seconds(5)) {
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    EXPECT_TRUE(end.state()->IsReached()) << "the kernel goes on";
    EXPECT_THROW(comm->AllGather(device::MemoryOf(mine), device::MemoryOf(all)), CommError);
  });
}

TEST(NcclCommunicatorTest, ACollectiveUndoneAtTheDeadlineIsNamed) {
  if (Gpus() < 2) {
    GTEST_SKIP() << "needs two GPUs";
  }
  MemoryStore store;
  RunThreadRanks(2, [&](int rank) {
    const auto device = device::MakeCudaDevice(rank);
    const auto comm = Join(store, rank, 2, absl::Seconds(5));
    const auto stream = device->MakeStream("a", device::StreamPriority::kNormal, device::StreamError());
    const at::Tensor mine = at::full({8}, 1, at::TensorOptions().dtype(at::kFloat).device(at::kCUDA, rank));
    at::Tensor all = at::zeros({16}, mine.options());
    stream->Enqueue([&] { comm->AllGather(device::MemoryOf(mine), device::MemoryOf(all)); });
    stream->Synchronize();
    if (rank == 1) {
      std::this_thread::sleep_for(std::chrono::seconds(7));
      return;
    }
    stream->Enqueue([&] { comm->AllGather(device::MemoryOf(mine), device::MemoryOf(all)); });
    std::string told;
    const auto start = std::chrono::steady_clock::now();
    while (told.empty() && std::chrono::steady_clock::now() - start < std::chrono::seconds(7)) {
      try {
        comm->CheckPending();
      } catch (const CommError& error) {
        told = error.what();
      }
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
    }
    EXPECT_EQ(told, "group test rank 0 AllGather number 1: not all ranks took part within 5s");
    comm->Abort();
  });
}

// Runs are issued ahead: a collective is enqueued long before the GPU has done what is before it.
TEST(NcclCommunicatorTest, TheDeadlineCountsFromTheGpusStart) {
  MemoryStore store;
  const auto device = device::MakeCudaDevice(0);
  const auto comm = Join(store, 0, 1, absl::Seconds(3));
  const auto stream = device->MakeStream("a", device::StreamPriority::kNormal, device::StreamError());
  const at::Tensor mine = Numbers(8, 0);
  at::Tensor all = at::zeros({8}, mine.options());
  all.sum().item<float>();  // what the default stream did is done
  stream->Enqueue([&] {
    cuda::Spin(4'500'000'000, c10::cuda::getCurrentCUDAStream().stream());
    comm->AllGather(device::MemoryOf(mine), device::MemoryOf(all));
  });
  const device::Event end = stream->Record();
  const auto start = std::chrono::steady_clock::now();
  while (!end.IsReached() && std::chrono::steady_clock::now() - start < std::chrono::seconds(20)) {
    ASSERT_NO_THROW(comm->CheckPending());
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  EXPECT_GT(std::chrono::steady_clock::now() - start, std::chrono::seconds(4)) << "the GPU was not busy";
  EXPECT_NO_THROW(comm->CheckPending());
  EXPECT_EQ(comm->num_ended(), 1u);
  EXPECT_TRUE(all.equal(mine));
}

}  // namespace
}  // namespace tandem::comm
