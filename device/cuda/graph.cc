// SPDX-License-Identifier: Apache-2.0
#include <ATen/cuda/MemPool.h>
#include <c10/cuda/CUDACachingAllocator.h>
#include <c10/cuda/CUDAFunctions.h>
#include <c10/cuda/CUDAGuard.h>
#include <c10/cuda/CUDAStream.h>
#include <cuda_runtime_api.h>

#include <stdexcept>
#include <string>
#include <thread>

#include "device/cuda/check.h"
#include "device/cuda/device.h"

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

namespace allocator = c10::cuda::CUDACachingAllocator;

// Counts how often LibTorch's allocator allocates memory of a GPU for this thread while the object lives.
// For each allocation on any thread, the allocator asks whether it shall come from a pool; here it never
// does.
class AllocationsOfThisThread {
 public:
  explicit AllocationsOfThisThread(c10::DeviceIndex device) : device_(device) {
    if (!allocator::get()->initialized()) {
      allocator::init(c10::cuda::device_count());
    }
    allocator::beginAllocateToPool(device_, pool_, [this, thread = std::this_thread::get_id()](cudaStream_t) {
      if (std::this_thread::get_id() == thread) {
        ++count_;
      }
      return false;
    });
  }
  ~AllocationsOfThisThread() {
    allocator::endAllocateToPool(device_, pool_);
    allocator::releasePool(device_, pool_);
  }
  AllocationsOfThisThread(const AllocationsOfThisThread&) = delete;
  AllocationsOfThisThread& operator=(const AllocationsOfThisThread&) = delete;

  int64_t count() const { return count_; }

 private:
  const c10::DeviceIndex device_;
  const c10::MempoolId_t pool_ = at::cuda::MemPool::graph_pool_handle();
  int64_t count_ = 0;
};

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
  // Memory allocated during a capture would be allocated again later, while the graph still uses it.
  const AllocationsOfThisThread allocations(device);
  Captured captured;
  // Calls of other threads do not end this capture.
  CheckCuda(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal), "begin of a capture");
  try {
    work();
  } catch (...) {
    cudaStreamEndCapture(stream, &captured.graph);
    cudaGetLastError();  // clears the error that the capture was ended early
    throw;
  }
  CheckCuda(cudaStreamEndCapture(stream, &captured.graph), "end of a capture");
  if (allocations.count() > 0) {
    throw std::logic_error("work that is captured took memory of LibTorch's allocator " +
                           std::to_string(allocations.count()) + " times");
  }
  return std::make_unique<CudaGraph>(device, captured.graph);
}

}  // namespace tandem::device
