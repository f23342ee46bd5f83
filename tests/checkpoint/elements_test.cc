// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/elements.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <cstring>
#include <numeric>
#include <string>
#include <vector>

#include "tests/checkpoint/elements_of.h"
#include "tests/device/forwarding_device.h"

namespace tandem::checkpoint {
namespace {

std::string BytesOf(const at::Tensor& tensor) {
  const device::Memory memory = device::MemoryOf(tensor);
  return {memory.begin, static_cast<size_t>(memory.bytes)};
}

// Every number of 16 bits, as one of that type.
at::Tensor All(at::ScalarType type) {
  std::vector<uint16_t> bits(1 << 16);
  std::iota(bits.begin(), bits.end(), uint16_t{0});
  const at::Tensor all = at::empty({1 << 16}, type);
  std::memcpy(all.mutable_data_ptr(), bits.data(), all.nbytes());
  return all;
}

TEST(ElementsTest, HalvesAndBfloat16BecomeWhatTorchMakesThem) {
  for (const auto& [dtype, type] : {std::pair{"F16", at::kHalf}, {"BF16", at::kBFloat16}}) {
    const at::Tensor all = All(type);
    for (const at::ScalarType to : {at::kFloat, at::kDouble}) {
      const at::Tensor converted = at::full({1 << 16}, 7, to);
      WriteConverted(BytesOf(all), dtype, ElementsOf(converted));
      const at::Tensor expected = all.to(to);
      EXPECT_TRUE(at::equal(converted.nan_to_num(0.25), expected.nan_to_num(0.25))) << dtype;
      EXPECT_TRUE(at::equal(converted.signbit(), expected.signbit())) << dtype;
    }
  }
}

TEST(ElementsTest, WiderElementsAreRoundedAndPartsWrittenAlone) {
  const at::Tensor floats = at::arange(-50, 50, at::kFloat).mul(0.3701);
  for (const at::Tensor& from : {floats, floats.to(at::kDouble)}) {
    const char* const dtype = from.scalar_type() == at::kDouble ? "F64" : "F32";
    for (const at::ScalarType to : {at::kFloat, at::kBFloat16}) {
      const at::Tensor all = at::full({102}, 7, to);
      WriteConverted(BytesOf(from), dtype, ElementsOf(all).Part(1, 100));
      EXPECT_TRUE(at::equal(all.narrow(0, 1, 100), from.to(to)));
      EXPECT_EQ(all[0].item<float>() + all[101].item<float>(), 14);
    }
  }
}

// Copies late: what is read or written is there only once the device has been waited for.
class LateDevice final : public device::ForwardingDevice {
 public:
  using ForwardingDevice::ForwardingDevice;
  void CopyToDevice(void* to, const void* from, int64_t bytes) override { late_ = {to, from, bytes}; }
  void CopyToHost(void* to, const void* from, int64_t bytes) override { late_ = {to, from, bytes}; }
  void Synchronize() override { std::memcpy(late_.to, late_.from, static_cast<size_t>(late_.bytes)); }

 private:
  struct Copy {
    void* to = nullptr;
    const void* from = nullptr;
    int64_t bytes = 0;
  };
  Copy late_;
};

TEST(ElementsTest, DeviceDataIsThereWhenTheCallReturns) {
  const auto host = device::MakeCpuDevice();
  LateDevice late(*host);
  const at::Tensor narrow = at::arange(7, at::kBFloat16);
  Elements there = ElementsOf(narrow);
  there.device = &late;
  std::string read;
  Read(there, device::ElementKind::kFloat, read);
  EXPECT_EQ(read, BytesOf(narrow.to(at::kFloat)));
  Read(there, device::ElementKind::kBf16, read);
  EXPECT_EQ(read, BytesOf(narrow));
  WriteConverted(BytesOf(at::arange(7, at::kFloat).add(1)), "F32", there);
  EXPECT_TRUE(at::equal(narrow, at::arange(7, at::kBFloat16).add(1)));
}

}  // namespace
}  // namespace tandem::checkpoint
