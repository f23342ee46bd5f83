// SPDX-License-Identifier: Apache-2.0
#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/isnan.h>
#include <c10/cuda/CUDAStream.h>
#include <gtest/gtest.h>

#include <chrono>
#include <set>
#include <stdexcept>
#include <thread>
#include <vector>

#include "device/cuda/device.h"
#include "device/static_arena.h"
#include "tests/cuda/spin.h"
#include "tests/device/tensors.h"

namespace tandem::cuda {
namespace {

class CudaDeviceTest : public testing::Test {
 protected:
  const std::unique_ptr<device::Device> device_ = device::MakeCudaDevice(0);
};

void SpinHere(int64_t nanoseconds) { Spin(nanoseconds, c10::cuda::getCurrentCUDAStream().stream()); }

TEST_F(CudaDeviceTest, AnAbsentGpuIsNamed) {
  try {
    device::MakeCudaDevice(99);
    FAIL() << "there is no GPU 99";
  } catch (const std::runtime_error& error) {
    EXPECT_NE(std::string(error.what()).find("no GPU 99"), std::string::npos) << error.what();
  }
}

TEST_F(CudaDeviceTest, TheGpuGoesOnAfterOutOfMemory) {
  EXPECT_THROW(device_->Reserve(int64_t{1} << 50), device::OutOfMemory);
  EXPECT_EQ(device_->Reserve(1 << 20)->bytes(), 1 << 20);
}

TEST_F(CudaDeviceTest, StreamsWaitForEventsTheHostDoesNot) {
  const device::StreamError error;
  const auto producer = device_->MakeStream("producer", device::StreamPriority::kNormal, error);
  const auto consumer = device_->MakeStream("consumer", device::StreamPriority::kNormal, error);
  const device::StaticArena arena(*device_, device_->Reserve(4096));
  at::Tensor number = device::TensorAt(*device_, arena, 256, {1}, at::kDouble);
  const device::StaticArena pinned(*device_, device_->ReserveHost(8));
  auto* const host = pinned.At(0, 8).as<double>();
  producer->Enqueue([&] { number.fill_(0); });
  producer->Synchronize();
  const auto start = std::chrono::steady_clock::now();
  producer->Enqueue([&] {
    SpinHere(100'000'000);
    number.fill_(5);
  });
  const device::Event written = producer->Record();
  consumer->Wait(written);
  consumer->Enqueue([&] { device_->CopyToHost(host, number.const_data_ptr(), 8); });
  EXPECT_FALSE(written.state()->IsReached());
  EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::milliseconds(90)) << "the host has waited";
  consumer->Synchronize();
  EXPECT_EQ(*host, 5);
  EXPECT_TRUE(written.state()->IsReached());
  *host = 7;
  consumer->Enqueue([&] { device_->CopyToDevice(number.mutable_data_ptr(), host, 8); });
  consumer->Synchronize();
  EXPECT_EQ(number.item<double>(), 7);
}

TEST_F(CudaDeviceTest, ArenasStartOnTheGpuAsNan) {
  const device::StaticArena arena(*device_, device_->Reserve(4096), /*fill_with_nan=*/true);
  EXPECT_TRUE(device::TensorAt(*device_, arena, 0, {4}, at::kFloat).is_cuda());
  EXPECT_EQ(at::isnan(device::TensorAt(*device_, arena, 0, {512}, at::kDouble)).sum().item<int64_t>(), 512);
  device::TensorAt(*device_, arena, 256, {8}, at::kFloat).fill_(2);
  EXPECT_EQ(device::TensorAt(*device_, arena, 260, {7}, at::kFloat).sum().item<float>(), 14);
}

// As a program does: inputs go up on a stream of their own one run ahead, compute waits for them, results
// come down on a third one, and the host waits for the run before the last.
TEST_F(CudaDeviceTest, AHostOneRunAheadReadsEveryResult) {
  const device::StreamError error;
  const auto up = device_->MakeStream("host-to-device", device::StreamPriority::kNormal, error);
  const auto compute = device_->MakeStream("compute", device::StreamPriority::kNormal, error);
  const auto down = device_->MakeStream("device-to-host", device::StreamPriority::kNormal, error);
  const device::StaticArena arena(*device_, device_->Reserve(4096));
  const device::StaticArena host(*device_, device_->ReserveHost(4096));
  at::Tensor state = device::TensorAt(*device_, arena, 2048, {1}, at::kDouble);
  state.fill_(0);
  device_->Synchronize();
  std::vector<device::Event> ends(2);
  std::set<const device::Event::State*> states;
  double expected[2] = {};
  double sum = 0;
  constexpr int kRuns = 200;
  for (int run = 0; run < kRuns + 2; ++run) {
    const int element = run % 2;
    if (run >= 2) {
      down->Synchronize(ends[element]);
      EXPECT_EQ(host.At(512 + 256 * element, 8).as<double>()[0], expected[element]) << "run " << run - 2;
    }
    if (run >= kRuns) {
      continue;
    }
    host.At(256 * element, 8).as<double>()[0] = run;
    sum = sum * 0.5 + run;
    expected[element] = sum;
    const at::Tensor input = device::TensorAt(*device_, arena, 256 * element, {1}, at::kDouble);
    at::Tensor output = device::TensorAt(*device_, arena, 512 + 256 * element, {1}, at::kDouble);
    up->Enqueue(
        [&] { device_->CopyToDevice(arena.At(256 * element, 8).begin, host.At(256 * element, 8).begin, 8); });
    const device::Event loaded = up->Record();
    compute->Wait(loaded);
    compute->Enqueue([&] {
      if (run % 7 == 0) {
        SpinHere(2'000'000);
      }
      state.mul_(0.5).add_(input);
      output.copy_(state);
    });
    const device::Event computed = compute->Record();
    down->Wait(computed);
    down->Enqueue([&] {
      device_->CopyToHost(host.At(512 + 256 * element, 8).begin, arena.At(512 + 256 * element, 8).begin, 8);
    });
    ends[element] = down->Record();
    for (const device::Event& each : {loaded, computed, ends[element]}) {
      states.insert(each.state());
    }
  }
  EXPECT_LE(states.size(), 60u) << "events are used again";
}

TEST_F(CudaDeviceTest, AnErrorSkipsLaterWorkAndIsThrown) {
  const device::StreamError error;
  const auto a = device_->MakeStream("a", device::StreamPriority::kNormal, error);
  const auto b = device_->MakeStream("b", device::StreamPriority::kNormal, error);
  bool ran = false;
  a->Enqueue([] { throw std::runtime_error("first"); });
  b->Enqueue([&] { ran = true; });
  EXPECT_THROW(b->Synchronize(), std::runtime_error);
  EXPECT_THROW(a->Synchronize(), std::runtime_error);
  EXPECT_FALSE(ran);
}

TEST_F(CudaDeviceTest, OutsideErrorsEndWaitsForUnfinishedWork) {
  device::StreamError error;
  const auto stream = device_->MakeStream("a", device::StreamPriority::kNormal, error);
  stream->Enqueue([] { SpinHere(2'000'000'000); });
  std::thread other([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
    error.Set(std::make_exception_ptr(std::runtime_error("lost")));
  });
  const auto start = std::chrono::steady_clock::now();
  EXPECT_THROW(stream->Synchronize(), std::runtime_error);
  EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(1));
  other.join();
  device_->Synchronize();
}

}  // namespace
}  // namespace tandem::cuda
