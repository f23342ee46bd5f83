// SPDX-License-Identifier: Apache-2.0
#include "device/cuda/graph.h"

#include <c10/cuda/CUDACachingAllocator.h>
#include <c10/cuda/CUDAGuard.h>
#include <c10/cuda/CUDAStream.h>
#include <cuda_runtime_api.h>

#include <stdexcept>
#include <string>

#include "device/cuda/check.h"

namespace tandem::device {
namespace {

class CudaGraph final : public Graph {
 public:
  CudaGraph(c10::DeviceIndex device, cudaGraph_t captured) : device_(device) {
    const c10::cuda::CUDAGuard guard(device_);
    CheckCuda(cudaGraphInstantiate(&graph_, captured, 0), "instantiation of a graph");
  }
  ~CudaGraph() override {
    const c10::cuda::CUDAGuard guard(device_);
    cudaGraphExecDestroy(graph_);
  }

  void Launch() override {
    CheckCuda(cudaGraphLaunch(graph_, c10::cuda::getCurrentCUDAStream(device_).stream()),
              "launch of a graph");
  }

 private:
  const c10::DeviceIndex device_;
  cudaGraphExec_t graph_ = nullptr;
};

// How often LibTorch's allocator has given out memory. What it gives out during a capture is given out again
// later, while the graph still uses it.
int64_t Allocations(c10::DeviceIndex device) {
  namespace allocator = c10::cuda::CUDACachingAllocator;
  return allocator::get()->initialized() ? allocator::getDeviceStats(device).allocation.at(0).allocated : 0;
}

// The template of a graph while it is instantiated.
struct Captured {
  ~Captured() {
    if (graph != nullptr) {
      cudaGraphDestroy(graph);
    }
  }
  cudaGraph_t graph = nullptr;
};

}  // namespace

std::unique_ptr<Graph> CaptureCudaGraph(int index, const std::function<void()>& work) {
  const auto device = static_cast<c10::DeviceIndex>(index);
  const c10::cuda::CUDAGuard guard(device);
  const cudaStream_t stream = c10::cuda::getCurrentCUDAStream(device).stream();
  const int64_t before = Allocations(device);
  Captured captured;
  // Of the calls of other threads, none ends this capture.
  CheckCuda(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal), "begin of a capture");
  try {
    work();
  } catch (...) {
    cudaStreamEndCapture(stream, &captured.graph);
    cudaGetLastError();  // that the capture was ended early
    throw;
  }
  CheckCuda(cudaStreamEndCapture(stream, &captured.graph), "end of a capture");
  if (const int64_t made = Allocations(device) - before; made > 0) {
    throw std::logic_error("work that is captured took memory of LibTorch's allocator " +
                           std::to_string(made) + " times");
  }
  return std::make_unique<CudaGraph>(device, captured.graph);
}

}  // namespace tandem::device
