// SPDX-License-Identifier: Apache-2.0
#include "device/static_arena.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <memory>
#include <stdexcept>

#include "device/device.h"
#include "tests/device/tensors.h"

namespace tandem::device {
namespace {

std::unique_ptr<Device> Cpu() { return MakeCpuDevice(); }

TEST(StaticArenaTest, TensorsLieAtTheirOffsets) {
  const auto device = Cpu();
  const StaticArena arena(*device, device->Reserve(4096));
  at::Tensor a = TensorAt(*device, arena, 256, {3, 5}, at::kFloat);
  at::Tensor b = TensorAt(*device, arena, 512, {7}, at::kDouble);
  EXPECT_EQ(static_cast<char*>(a.mutable_data_ptr()), arena.all().begin + 256);
  EXPECT_EQ(arena.At(512, 56).begin, arena.all().begin + 512);
  a.fill_(1);
  b.fill_(2);
  EXPECT_EQ(a.sum().item<float>(), 15);
  EXPECT_EQ(TensorAt(*device, arena, 512, {7}, at::kDouble).sum().item<double>(), 14)
      << "the same memory again";
  // What shares bytes does so: it is for the addresses to say whether that is right.
  EXPECT_EQ(TensorAt(*device, arena, 256, {15}, at::kFloat).sum().item<float>(), 15);
}

TEST(StaticArenaTest, RegionIsNanOnRequest) {
  const auto device = Cpu();
  const StaticArena arena(*device, device->Reserve(1000), /*fill_with_nan=*/true);
  EXPECT_TRUE(at::isnan(TensorAt(*device, arena, 0, {125}, at::kDouble)).all().item<bool>());
  EXPECT_TRUE(at::isnan(TensorAt(*device, arena, 0, {250}, at::kFloat)).all().item<bool>());
  EXPECT_TRUE(at::isnan(TensorAt(*device, arena, 0, {500}, at::kBFloat16)).all().item<bool>());
}

TEST(StaticArenaTest, WhatDoesNotFitIsRefused) {
  const auto device = Cpu();
  const StaticArena arena(*device, device->Reserve(1024));
  EXPECT_NO_THROW(arena.At(1024, 0));
  EXPECT_THROW(arena.At(0, 1025), std::out_of_range);
  EXPECT_THROW(arena.At(-1, 4), std::out_of_range);
  EXPECT_THROW(arena.At(1000, 25), std::out_of_range);
  EXPECT_THROW(arena.At(4, int64_t{1} << 62), std::out_of_range);
}

TEST(StaticArenaTest, HostMemoryIsCopiedBothWays) {
  const auto device = Cpu();
  const StaticArena arena(*device, device->Reserve(1024));
  const StaticArena host(*device, device->ReserveHost(64));
  host.At(0, 8).as<double>()[0] = 5;
  const auto stream = device->MakeStream("copies", StreamPriority::kNormal, StreamError());
  stream->Enqueue([&] { device->CopyToDevice(arena.At(256, 8).begin, host.At(0, 8).begin, 8); });
  stream->Enqueue([&] { TensorAt(*device, arena, 256, {1}, at::kDouble).mul_(3); });
  stream->Enqueue([&] { device->CopyToHost(host.At(56, 8).begin, arena.At(256, 8).begin, 8); });
  stream->Synchronize();
  EXPECT_EQ(host.At(56, 8).as<double>()[0], 15);
  EXPECT_EQ(host.At(0, 8).as<double>()[0], 5);
  EXPECT_THROW(host.At(60, 8), std::out_of_range);
}

}  // namespace
}  // namespace tandem::device
