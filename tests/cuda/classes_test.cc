// SPDX-License-Identifier: Apache-2.0
// Units with parameters of several types on GPUs.
#include <gtest/gtest.h>

#include "comm/nccl_factory.h"
#include "device/cuda/device.h"
#include "fsdp/cuda/shard_kernels.h"
#include "tests/comm/memory_store.h"
#include "tests/comm/thread_groups.h"
#include "tests/fsdp/classes_run.h"

namespace tandem::fsdp {
namespace {

std::vector<test::Bytes> TrainOnCpu(const test::Placed& placed) {
  comm::ThreadGroups threads;
  return test::TrainClasses(placed,
                            {.device = [](int) { return device::MakeCpuDevice(); },
                             .communicator =
                                 [&](const std::string& group, int rank_in_group, int size, int) {
                                   return threads.MakeFactory()->Make(
                                       {.group = group, .prefix = group, .rank = rank_in_group, .size = size},
                                       nullptr);
                                 },
                             .kernels = CpuShardKernels()},
                            /*together=*/true);
}

std::vector<test::Bytes> TrainOnGpus(const test::Placed& placed) {
  comm::MemoryStore store;
  return test::TrainClasses(placed,
                            {.device = [](int rank) { return device::MakeCudaDevice(rank); },
                             .communicator =
                                 [&](const std::string& group, int rank_in_group, int size, int rank) {
                                   return comm::MakeNcclCommunicator(group, store, group, rank_in_group, size,
                                                                     rank, absl::Minutes(1));
                                 },
                             .kernels = CudaShardKernels()},
                            /*together=*/true);
}

TEST(CudaClassesTest, GiveTheBitsOfTheCpu) {
  for (const test::Placed& placed : test::Placements()) {
    if (placed.ranks() > device::CountCudaDevices()) {
      continue;
    }
    SCOPED_TRACE(testing::Message() << placed.strategy << ", " << placed.mesh.inner << " × "
                                    << placed.mesh.outer << " ranks");
    const std::vector<test::Bytes> cpu = TrainOnCpu(placed);
    const std::vector<test::Bytes> gpu = TrainOnGpus(placed);
    for (size_t rank = 0; rank < cpu.size(); ++rank) {
      for (const auto& [role, classes] : cpu[rank]) {
        ASSERT_EQ(classes.size(), 3U) << role;
        for (size_t c = 0; c < classes.size(); ++c) {
          EXPECT_TRUE(classes[c] == gpu[rank].at(role)[c]) << role << " of class " << c << ", rank " << rank;
        }
      }
    }
  }
}

}  // namespace
}  // namespace tandem::fsdp
