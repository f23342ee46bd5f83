// SPDX-License-Identifier: Apache-2.0
#include "bench/gpu_bounds.h"

#include <ATen/core/Tensor.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/mm.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/randn.h>
#include <c10/core/Device.h>
#include <c10/cuda/CUDACachingAllocator.h>
#include <c10/cuda/CUDAStream.h>
#include <cuda_runtime.h>

#include <array>
#include <chrono>
#include <cstdio>
#include <thread>
#include <utility>
#include <vector>

#include "bench/result_line.h"
#include "device/cuda/check.h"
#include "device/cuda/device.h"
#include "nlohmann/json.hpp"

namespace tandem::bench {

using device::CheckCuda;

namespace {

void Print(nlohmann::ordered_json line, const Bounds& bounds) {
  std::printf("%s\n", ResultLine(std::move(line), bounds.machine).c_str());
  std::fflush(stdout);
}

}  // namespace

double Time(const std::function<void()>& call) {
  constexpr int kWarmups = 3;
  constexpr int kRuns = 11;
  // What was measured before shows for some milliseconds otherwise: it draws the GPU's whole power, or the
  // driver is still busy with memory that was given back.
  constexpr std::chrono::milliseconds kRest{100};
  CheckCuda(cudaDeviceSynchronize(), "what was called before");
  std::this_thread::sleep_for(kRest);
  const cudaStream_t stream = c10::cuda::getCurrentCUDAStream().stream();
  for (int i = 0; i < kWarmups; ++i) {
    call();
  }
  std::array<cudaEvent_t, kRuns + 1> events{};
  for (cudaEvent_t& event : events) {
    CheckCuda(cudaEventCreate(&event), "event");
  }
  CheckCuda(cudaEventRecord(events[0], stream), "event");
  for (int i = 0; i < kRuns; ++i) {
    call();
    CheckCuda(cudaEventRecord(events[i + 1], stream), "event");
  }
  CheckCuda(cudaStreamSynchronize(stream), "the measured call");
  std::vector<double> times;
  for (int i = 0; i < kRuns; ++i) {
    float ms = 0;
    CheckCuda(cudaEventElapsedTime(&ms, events[i], events[i + 1]), "time");
    times.push_back(ms);
  }
  for (const cudaEvent_t event : events) {
    CheckCuda(cudaEventDestroy(event), "event");
  }
  return Median(std::move(times));
}

double Bytes(std::initializer_list<at::Tensor> tensors) {
  double bytes = 0;
  for (const at::Tensor& tensor : tensors) {
    bytes += static_cast<double>(tensor.nbytes());
  }
  return bytes;
}

void ShapeRows::Moves(const std::string& operation, double bytes, const std::function<void()>& ours,
                      const std::function<void()>& aten) const {
  Row(operation, "bytes", bytes, "tb_per_s", bounds_.bytes_per_second, ours, aten);
}

void ShapeRows::Computes(const std::string& operation, double flops, const std::function<void()>& ours,
                         const std::function<void()>& aten) const {
  Row(operation, "flops", flops, "tflop_per_s", bounds_.flops_per_second, ours, aten);
}

void ShapeRows::Row(const std::string& operation, const char* unit, double amount, const char* rate,
                    double bound, const std::function<void()>& ours,
                    const std::function<void()>& aten) const {
  const double ms = Time(ours);
  nlohmann::ordered_json line = {
      {"shape", shape_},   {"operation", operation},   {"ms", ms},
      {unit, amount},      {rate, amount / ms * 1e-9}, {"of_bound", amount / bound * 1e3 / ms},
      {"aten_ms", nullptr}};
  if (aten) {
    line["aten_ms"] = Time(aten);
  }
  Print(std::move(line), bounds_);
  c10::cuda::CUDACachingAllocator::emptyCache();
}

Bounds MeasureBounds() {
  const at::TensorOptions gpu(at::kCUDA);
  const at::Tensor from = at::ones({int64_t{1} << 29}, gpu.dtype(at::kFloat));
  at::Tensor to = at::empty_like(from);
  const double copy = Time([&] { to.copy_(from); });
  const at::Tensor a = at::randn({8192, 8192}, gpu.dtype(at::kBFloat16));
  at::Tensor c = at::empty_like(a);
  const double product = Time([&] { at::mm_out(c, a, a); });
  const Bounds bounds{.machine = device::MakeCudaDevice(0)->name(),
                      .bytes_per_second = 2 * static_cast<double>(from.nbytes()) / copy * 1e3,
                      .flops_per_second = 2 * 8192.0 * 8192 * 8192 / product * 1e3};
  Print({{"copy_tb_per_s", bounds.bytes_per_second * 1e-12},
         {"gemm_tflop_per_s", bounds.flops_per_second * 1e-12}},
        bounds);
  return bounds;
}

}  // namespace tandem::bench
