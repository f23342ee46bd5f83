// SPDX-License-Identifier: Apache-2.0
#include "device/cuda/device.h"

#include <cuda_runtime_api.h>

#include <stdexcept>

#include "device/cuda/check.h"
#include "device/cuda/current.h"
#include "device/cuda/graph.h"

namespace tandem::device {
namespace {

class CudaRegion final : public Region {
 public:
  CudaRegion(int index, int64_t bytes) : index_(index), bytes_(bytes) {
    if (bytes_ == 0) {
      return;
    }
    const CudaGuard guard(index_);
    const cudaError_t error = cudaMalloc(&begin_, static_cast<size_t>(bytes_));
    if (error == cudaErrorMemoryAllocation) {
      cudaGetLastError();  // this one does not stay
      size_t free = 0;
      size_t total = 0;
      CheckCuda(cudaMemGetInfo(&free, &total), "memory of the GPU");
      throw OutOfMemory("GPU " + std::to_string(index_) + " has " + std::to_string(free) + " of " +
                        std::to_string(total) + " bytes free, the job needs " + std::to_string(bytes_) +
                        " of them");
    }
    CheckCuda(error, "allocation of memory");
  }
  ~CudaRegion() override {
    if (begin_ != nullptr) {
      const CudaGuard guard(index_);
      cudaFree(begin_);  // an earlier error of the GPU may be returned here once more
    }
  }

  char* begin() const override { return static_cast<char*>(begin_); }
  int64_t bytes() const override { return bytes_; }

 private:
  const int index_;
  void* begin_ = nullptr;
  const int64_t bytes_;
};

class PinnedRegion final : public Region {
 public:
  PinnedRegion(int index, int64_t bytes) : bytes_(bytes) {
    if (bytes_ == 0) {
      return;
    }
    const CudaGuard guard(index);
    const cudaError_t error = cudaMallocHost(&begin_, static_cast<size_t>(bytes_));
    if (error == cudaErrorMemoryAllocation) {
      cudaGetLastError();  // this one does not stay
      throw OutOfMemory("the machine has no " + std::to_string(bytes_) +
                        " bytes of memory that can be pinned");
    }
    CheckCuda(error, "allocation of pinned memory");
  }
  ~PinnedRegion() override { cudaFreeHost(begin_); }

  char* begin() const override { return static_cast<char*>(begin_); }
  int64_t bytes() const override { return bytes_; }

 private:
  void* begin_ = nullptr;
  const int64_t bytes_;
};

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
    // Makes the GPU's context, so that a broken one shows here.
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
    return std::make_unique<CudaRegion>(index_, bytes);
  }
  std::unique_ptr<Region> ReserveHost(int64_t bytes) override {
    return std::make_unique<PinnedRegion>(index_, bytes);
  }
  void CopyToDevice(void* device, const void* host, int64_t bytes) override {
    const CudaGuard guard(index_);
    CheckCuda(cudaMemcpyAsync(device, host, static_cast<size_t>(bytes), cudaMemcpyHostToDevice,
                              CurrentCudaStream(index_)),
              "copy to the GPU");
  }
  void CopyToHost(void* host, const void* device, int64_t bytes) override {
    const CudaGuard guard(index_);
    CheckCuda(cudaMemcpyAsync(host, device, static_cast<size_t>(bytes), cudaMemcpyDeviceToHost,
                              CurrentCudaStream(index_)),
              "copy from the GPU");
  }
  void Copy(void* to, const void* from, int64_t bytes) override {
    const CudaGuard guard(index_);
    CheckCuda(cudaMemcpyAsync(to, from, static_cast<size_t>(bytes), cudaMemcpyDeviceToDevice,
                              CurrentCudaStream(index_)),
              "copy on the GPU");
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
  const int index_;
};

}  // namespace

std::unique_ptr<Device> MakeCudaDevice(int index) { return std::make_unique<CudaDevice>(index); }

int CountCudaDevices() {
  int count = 0;
  return cudaGetDeviceCount(&count) == cudaSuccess ? count : 0;
}

}  // namespace tandem::device
