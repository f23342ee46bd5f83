// SPDX-License-Identifier: Apache-2.0
#include "bench/gpu_bounds.h"

#include <ATen/core/Tensor.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/mm.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/randn.h>
#include <c10/core/Device.h>
#include <c10/cuda/CUDAStream.h>
#include <cuda_runtime.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <vector>

#include "device/cuda/check.h"

namespace tandem::bench {

using device::CheckCuda;

double Time(const std::function<void()>& call) {
  constexpr int kWarmups = 3;
  constexpr int kRuns = 11;
  const cudaStream_t stream = c10::cuda::getCurrentCUDAStream().stream();
  for (int i = 0; i < kWarmups; ++i) call();
  std::array<cudaEvent_t, kRuns + 1> events{};
  for (cudaEvent_t& event : events) CheckCuda(cudaEventCreate(&event), "event");
  CheckCuda(cudaEventRecord(events[0], stream), "event");
  for (int i = 0; i < kRuns; ++i) {
    call();
    CheckCuda(cudaEventRecord(events[i + 1], stream), "event");
  }
  CheckCuda(cudaStreamSynchronize(stream), "the measured call");
  std::vector<float> times(kRuns);
  for (int i = 0; i < kRuns; ++i) {
    CheckCuda(cudaEventElapsedTime(&times[i], events[i], events[i + 1]), "time");
  }
  for (const cudaEvent_t event : events) CheckCuda(cudaEventDestroy(event), "event");
  std::nth_element(times.begin(), times.begin() + kRuns / 2, times.end());
  return times[kRuns / 2];
}

void Print(const nlohmann::ordered_json& line) {
  std::printf("%s\n", line.dump().c_str());
  std::fflush(stdout);
}

Bounds MeasureBounds() {
  const at::TensorOptions gpu(at::kCUDA);
  const at::Tensor from = at::ones({int64_t{1} << 29}, gpu.dtype(at::kFloat));
  at::Tensor to = at::empty_like(from);
  const double copy = Time([&] { to.copy_(from); });
  const at::Tensor a = at::randn({8192, 8192}, gpu.dtype(at::kBFloat16));
  at::Tensor c = at::empty_like(a);
  const double product = Time([&] { at::mm_out(c, a, a); });
  const Bounds bounds{.bytes_per_second = 2 * static_cast<double>(from.nbytes()) / copy * 1e3,
                      .flops_per_second = 2 * 8192.0 * 8192 * 8192 / product * 1e3};
  cudaDeviceProp properties{};
  CheckCuda(cudaGetDeviceProperties(&properties, 0), "device");
  Print({{"device", properties.name},
         {"copy_tb_per_s", bounds.bytes_per_second * 1e-12},
         {"gemm_tflop_per_s", bounds.flops_per_second * 1e-12}});
  return bounds;
}

}  // namespace tandem::bench
