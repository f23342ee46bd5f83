// SPDX-License-Identifier: Apache-2.0
#include "worker/gpus.h"

#include <gtest/gtest.h>

#include <string>

namespace tandem::worker {
namespace {

TEST(GpusTest, EachLineOfNvidiaSmiIsASlot) {
  const auto slots =
      ReadGpus("0, NVIDIA H200, GPU-0be82b0e-89fc, 143771\n1, NVIDIA H200, GPU-d3c23986-30a8, 143771\n");
  ASSERT_TRUE(slots.ok()) << slots.status();
  ASSERT_EQ(slots->size(), 2u);
  EXPECT_EQ((*slots)[1].index(), 1);
  EXPECT_EQ((*slots)[1].device(), v1::DEVICE_CUDA);
  EXPECT_EQ((*slots)[1].name(), "NVIDIA H200");
  EXPECT_EQ((*slots)[1].uuid(), "GPU-d3c23986-30a8");
  EXPECT_EQ((*slots)[1].memory_bytes(), int64_t{143771} << 20);
  EXPECT_TRUE((*slots)[1].healthy());
}

TEST(GpusTest, NoLineIsNoGpu) {
  const auto slots = ReadGpus("");
  ASSERT_TRUE(slots.ok());
  EXPECT_TRUE(slots->empty());
}

TEST(GpusTest, WhatIsNoGpuIsAnError) {
  EXPECT_EQ(ReadGpus("No devices were found\n").status().message(),
            "nvidia-smi printed 'No devices were found', which is not a GPU");
  EXPECT_FALSE(ReadGpus("0, NVIDIA H200, GPU-0be82b0e, much\n").ok());
}

// Of GPUs that share the machine's memory.
TEST(GpusTest, UnknownMemoryHidesNoGpu) {
  for (const char* const memory : {"[N/A]", "N/A", "[Not Supported]"}) {
    const auto slots = ReadGpus(std::string("0, NVIDIA GB10, GPU-0be82b0e, ") + memory + "\n");
    ASSERT_TRUE(slots.ok()) << slots.status();
    ASSERT_EQ(slots->size(), 1u);
    EXPECT_EQ((*slots)[0].memory_bytes(), 0);
  }
}

TEST(GpusTest, PartsOfAGpuHaveNames) {
  const auto slots = ReadMigs(
      "GPU 0: NVIDIA H200 (UUID: GPU-aa11)\n"
      "  MIG 1g.18gb     Device  0: (UUID: MIG-5c1d)\n"
      "  MIG 2g.35gb+me  Device  1: (UUID: MIG-GPU-aa11/2/0)\n"
      "GPU 1: NVIDIA H200 (UUID: GPU-bb22)\n");
  ASSERT_EQ(slots.size(), 2u);
  EXPECT_EQ(slots[0].uuid(), "MIG-5c1d");
  EXPECT_EQ(slots[0].name(), "MIG 1g.18gb");
  EXPECT_EQ(slots[0].memory_bytes(), int64_t{18} << 30);
  EXPECT_EQ(slots[1].uuid(), "MIG-GPU-aa11/2/0");
  EXPECT_EQ(slots[1].memory_bytes(), int64_t{35} << 30);
}

class VisibleGpusTest : public testing::Test {
 protected:
  // "0:GPU-aa11,1:GPU-bb22": index and UUID of each slot.
  static std::string Offered(const char* visible) {
    auto gpus = ReadGpus("0, H200, GPU-aa11, 1\n1, H200, GPU-ab22, 1\n2, H200, GPU-cc33, 1\n");
    for (const v1::Slot& mig :
         ReadMigs("MIG 1g.18gb Device 0: (UUID: MIG-5c1d)\nMIG 1g.18gb Device 1: (UUID: MIG-6e2f)\n")) {
      gpus->push_back(mig);
    }
    const auto slots = VisibleGpus(*gpus, visible);
    if (!slots.ok()) {
      return std::string(slots.status().message());
    }
    std::string text;
    for (const v1::Slot& slot : *slots) {
      text += (text.empty() ? "" : ",") + std::to_string(slot.index()) + ":" + slot.uuid();
    }
    return text;
  }
};

TEST_F(VisibleGpusTest, AllWhereNothingIsSaid) {
  EXPECT_EQ(Offered(nullptr), "0:GPU-aa11,1:GPU-ab22,2:GPU-cc33");
}

TEST_F(VisibleGpusTest, PartOfAGpuMustBeAlone) {
  EXPECT_EQ(Offered("MIG-6e2f"), "0:MIG-6e2f");
  EXPECT_EQ(Offered("-1"), "");
  for (const char* const several : {"MIG-5c1d,MIG-6e2f", "0,MIG-5c1d"}) {
    EXPECT_NE(Offered(several).find("CUDA gives a process one part of a GPU (MIG)"), std::string::npos)
        << several;
  }
}

TEST_F(VisibleGpusTest, NamedGpusAreNumberedAsCudaDoes) {
  EXPECT_EQ(Offered("2"), "0:GPU-cc33");
  EXPECT_EQ(Offered("2,0"), "0:GPU-cc33,1:GPU-aa11");
  EXPECT_EQ(Offered("GPU-ab22, GPU-c"), "0:GPU-ab22,1:GPU-cc33");
}

TEST_F(VisibleGpusTest, NoneWhereNoneIsGiven) {
  for (const char* none : {"", " ", "-1", "NoDevFiles"}) {
    EXPECT_EQ(Offered(none), "") << none;
  }
}

TEST_F(VisibleGpusTest, UnknownGpuIsOneLine) {
  EXPECT_EQ(
      Offered("0,3"),
      "CUDA_VISIBLE_DEVICES is '0,3', and '3' is none of the 3 GPUs of this machine; name GPUs by number "
      "or UUID as nvidia-smi -L does, with commas between them");
  for (const char* bad : {"0,", "all", "0;1", "MIG-aa11", "GPU-a", "0,1,0", "1,GPU-ab22", "0,-1", "a\nb"}) {
    EXPECT_EQ(Offered(bad).rfind("CUDA_VISIBLE_DEVICES is '", 0), 0u) << bad << ": " << Offered(bad);
    EXPECT_EQ(Offered(bad).find('\n'), std::string::npos);
  }
}

TEST(OfferGpusTest, WhatIsNotOfferedHasAReason) {
  const auto two =
      ReadGpus("0, NVIDIA H200, GPU-0be82b0e-89fc, 143771\n1, NVIDIA H200, GPU-d3c23986-30a8, 1\n");
  EXPECT_EQ(OfferGpus(two, nullptr, true).slots.size(), 2u);
  EXPECT_EQ(OfferGpus(two, nullptr, true).unused, "");
  EXPECT_EQ(OfferGpus(two, "1", true).slots.size(), 1u);
  EXPECT_EQ(OfferGpus(two, "", true).unused, "CUDA_VISIBLE_DEVICES is '', which names none");
  EXPECT_EQ(OfferGpus(two, nullptr, false).unused, "there is no tandem-trainer-cuda beside tandem-trainer");
  EXPECT_EQ(OfferGpus(absl::UnavailableError("nvidia-smi failed: no driver"), nullptr, true).unused,
            "nvidia-smi failed: no driver");
  EXPECT_NE(OfferGpus(two, "7", true).unused.find("is none of the 2 GPUs"), std::string::npos);
  EXPECT_EQ(OfferGpus(ReadGpus(""), nullptr, true).unused, "") << "there is none to take";
}

TEST_F(VisibleGpusTest, RanksGetTheListByUuid) {
  const auto gpus = ReadGpus("0, H200, GPU-aa11, 1\n1, H200, GPU-ab22, 1\n");
  EXPECT_EQ(VisibleDevices(*VisibleGpus(*gpus, "1,0")), "GPU-ab22,GPU-aa11");
}

}  // namespace
}  // namespace tandem::worker
