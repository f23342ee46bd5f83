// SPDX-License-Identifier: Apache-2.0
#include "device/cuda/device.h"

#include <cuda_runtime_api.h>

#include <stdexcept>

#include "device/cuda/check.h"
#include "device/cuda/current.h"

namespace tandem::device {
namespace {

void* AllocateOnGpu(int index, int64_t bytes) {
  void* begin = nullptr;
  if (bytes > 0) {
    const CudaGuard guard(index);
    const cudaError_t error = cudaMalloc(&begin, static_cast<size_t>(bytes));
    if (error == cudaErrorMemoryAllocation) {
      ThrowOutOfMemory(index, bytes);
    }
    CheckCuda(error, "allocation of memory");
  }
  return begin;
}

void* AllocatePinned(int index, int64_t bytes) {
  void* begin = nullptr;
  if (bytes > 0) {
    const CudaGuard guard(index);
    const cudaError_t error = cudaMallocHost(&begin, static_cast<size_t>(bytes));
    if (error == cudaErrorMemoryAllocation) {
      cudaGetLastError();  // clears the error, which is not permanent
      throw OutOfMemory("this machine cannot pin " + std::to_string(bytes) + " bytes of memory");
    }
    CheckCuda(error, "allocation of pinned memory");
  }
  return begin;
}

class EventMark final : public TimeMark {
 public:
  explicit EventMark(cudaStream_t stream) {
    CheckCuda(cudaEventCreate(&event_), "creation of a timed event");
    CheckCuda(cudaEventRecord(event_, stream), "record of a timed event");
  }
  ~EventMark() override { cudaEventDestroy(event_); }

  int64_t Since(const TimeMark& origin) const override {
    float milliseconds = 0;
    CheckCuda(cudaEventElapsedTime(&milliseconds, static_cast<const EventMark&>(origin).event_, event_),
              "time between two events");
    return static_cast<int64_t>(static_cast<double>(milliseconds) * 1e6);
  }

 private:
  cudaEvent_t event_ = nullptr;
};

class CudaDevice final : public Device {
 public:
  explicit CudaDevice(int index) : index_(index) {
    int count = 0;
    const cudaError_t error = cudaGetDeviceCount(&count);
    if (error != cudaSuccess) {
      throw std::runtime_error("no GPU can be used here: " + CudaErrorText(error));
    }
    if (index >= count) {
      throw std::runtime_error("there is no GPU " + std::to_string(index) + " here: this process sees " +
                               std::to_string(count));
    }
    // Makes the GPU's context here, so that a broken GPU is noticed here.
    CheckCuda(cudaSetDevice(index), "start of the GPU");
    CheckCuda(cudaFree(nullptr), "start of the GPU");
  }

  std::string name() const override {
    cudaDeviceProp properties{};
    CheckCuda(cudaGetDeviceProperties(&properties, index_), "properties of the GPU");
    return properties.name;
  }
  MemoryUse memory_use() const override {
    const CudaGuard guard(index_);
    size_t free = 0;
    size_t total = 0;
    CheckCuda(cudaMemGetInfo(&free, &total), "memory of the GPU");
    return {.used = static_cast<int64_t>(total - free), .total = static_cast<int64_t>(total)};
  }
  bool finishes_in_calls() const override { return false; }
  std::unique_ptr<Stream> MakeStream(const std::string&, StreamPriority priority,
                                     StreamError error) override {
    return MakeCudaStream(index_, priority, std::move(error));
  }
  std::unique_ptr<Region> Reserve(int64_t bytes) override {
    // cudaFree may return an earlier error of the GPU once more, which is ignored.
    return std::make_unique<CudaRegion>(index_, AllocateOnGpu(index_, bytes), bytes,
                                        [](void* begin) { cudaFree(begin); });
  }
  std::unique_ptr<Region> ReserveHost(int64_t bytes) override {
    return std::make_unique<CudaRegion>(index_, AllocatePinned(index_, bytes), bytes,
                                        [](void* begin) { cudaFreeHost(begin); });
  }
  void CopyToDevice(void* device, const void* host, int64_t bytes) override {
    CopyAsync(device, host, bytes, cudaMemcpyHostToDevice, "copy to the GPU");
  }
  void CopyToHost(void* host, const void* device, int64_t bytes) override {
    CopyAsync(host, device, bytes, cudaMemcpyDeviceToHost, "copy from the GPU");
  }
  void Copy(void* to, const void* from, int64_t bytes) override {
    CopyAsync(to, from, bytes, cudaMemcpyDeviceToDevice, "copy on the GPU");
  }
  std::unique_ptr<Graph> Capture(std::function<void()> work) override {
    return CaptureCudaGraph(index_, work);
  }
  void Fill(void* begin, uint8_t byte, int64_t bytes) override {
    const CudaGuard guard(index_);
    CheckCuda(cudaMemsetAsync(begin, byte, static_cast<size_t>(bytes), CurrentCudaStream(index_)), "fill");
  }
  std::unique_ptr<TimeMark> MarkTime() override {
    return std::make_unique<EventMark>(CurrentCudaStream(index_));
  }
  void Synchronize() override {
    const CudaGuard guard(index_);
    CheckCuda(cudaDeviceSynchronize(), "work before the first step");
  }

 private:
  void CopyAsync(void* to, const void* from, int64_t bytes, cudaMemcpyKind kind, const char* what) {
    const CudaGuard guard(index_);
    CheckCuda(cudaMemcpyAsync(to, from, static_cast<size_t>(bytes), kind, CurrentCudaStream(index_)), what);
  }

  const int index_;
};

}  // namespace

CudaRegion::~CudaRegion() {
  if (begin_ != nullptr) {
    const CudaGuard guard(index_);
    free_(begin_);
  }
}

void ThrowOutOfMemory(int index, int64_t bytes, const std::string& reason) {
  cudaGetLastError();  // clears the allocation's error
  size_t free = 0;
  size_t total = 0;
  CheckCuda(cudaMemGetInfo(&free, &total), "memory of the GPU");
  throw OutOfMemory("GPU " + std::to_string(index) + " has " + std::to_string(free) + " of " +
                    std::to_string(total) + " bytes free, the job needs " + std::to_string(bytes) +
                    " of them" + reason);
}

std::unique_ptr<Device> MakeCudaDevice(int index) { return std::make_unique<CudaDevice>(index); }

int CountCudaDevices() {
  int count = 0;
  return cudaGetDeviceCount(&count) == cudaSuccess ? count : 0;
}

}  // namespace tandem::device
