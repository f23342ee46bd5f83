#include "worker/gpus.h"

#include <gtest/gtest.h>

namespace tandem::worker {
namespace {

TEST(GpusTest, EachLineOfNvidiaSmiIsAPlace) {
  const auto places =
      ReadGpus("0, NVIDIA H200, GPU-0be82b0e-89fc, 143771\n1, NVIDIA H200, GPU-d3c23986-30a8, 143771\n");
  ASSERT_TRUE(places.ok()) << places.status();
  ASSERT_EQ(places->size(), 2u);
  EXPECT_EQ((*places)[1].index(), 1);
  EXPECT_EQ((*places)[1].device(), v1::DEVICE_CUDA);
  EXPECT_EQ((*places)[1].name(), "NVIDIA H200");
  EXPECT_EQ((*places)[1].uuid(), "GPU-d3c23986-30a8");
  EXPECT_EQ((*places)[1].memory_bytes(), int64_t{143771} << 20);
  EXPECT_TRUE((*places)[1].healthy());
}

TEST(GpusTest, NoLineIsNoGpu) {
  const auto places = ReadGpus("");
  ASSERT_TRUE(places.ok());
  EXPECT_TRUE(places->empty());
}

TEST(GpusTest, WhatIsNoGpuIsAnError) {
  EXPECT_EQ(ReadGpus("No devices were found\n").status().message(),
            "nvidia-smi printed 'No devices were found', which is no GPU");
  EXPECT_FALSE(ReadGpus("0, NVIDIA H200, GPU-0be82b0e, [N/A]\n").ok());
}

}  // namespace
}  // namespace tandem::worker
