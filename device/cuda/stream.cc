// SPDX-License-Identifier: Apache-2.0
#include <c10/core/InferenceMode.h>
#include <c10/cuda/CUDAFunctions.h>
#include <c10/cuda/CUDAGuard.h>
#include <c10/cuda/CUDAStream.h>
#include <cuda_runtime_api.h>

#include <array>
#include <chrono>
#include <memory>
#include <stdexcept>
#include <thread>

#include "device/cuda/check.h"
#include "device/cuda/current.h"
#include "device/cuda/device.h"
#include "device/event_pool.h"

namespace tandem::device {
namespace {

// How long a host that waits for a stream sleeps between two queries.
constexpr std::chrono::microseconds kPoll{20};

class CudaEvent final : public PooledEvent<CudaEvent> {
 public:
  CudaEvent() { CheckCuda(cudaEventCreateWithFlags(&event_, cudaEventDisableTiming), "making an event"); }
  ~CudaEvent() override { cudaEventDestroy(event_); }

  cudaEvent_t event() const { return event_; }

  bool IsReached() override {
    const cudaError_t error = cudaEventQuery(event_);
    if (error == cudaErrorNotReady) {
      return false;
    }
    CheckCuda(error, "work on the GPU");
    return true;
  }

 private:
  cudaEvent_t event_ = nullptr;
};

class CudaStream final : public Stream {
 public:
  CudaStream(int index, StreamPriority priority, StreamError error)
      : device_(static_cast<c10::DeviceIndex>(index)), error_(std::move(error)) {
    const CudaGuard guard(device_);
    int least = 0;
    int greatest = 0;
    CheckCuda(cudaDeviceGetStreamPriorityRange(&least, &greatest), "priorities of streams");
    CheckCuda(cudaStreamCreateWithPriority(&stream_, cudaStreamNonBlocking,
                                           priority == StreamPriority::kHigh ? greatest : least),
              "making a stream");
  }

  // Returns at once; the runtime frees the stream when its work is done.
  ~CudaStream() override {
    const CudaGuard guard(device_);
    cudaStreamDestroy(stream_);
  }

  void Enqueue(std::function<void()> work) override {
    if (error_.is_set()) {
      return;
    }
    try {
      KeepShort();
      if (error_.is_set()) {
        return;
      }
      // Disables autograd's graphs and version counters; a node that wraps autograd enables them for itself.
      const c10::InferenceMode no_gradients;
      const c10::cuda::CUDAStreamGuard current(c10::cuda::getStreamFromExternal(stream_, device_));
      work();
      issued_[(oldest_ + num_issued_++) % kStreamAhead] = Record();
    } catch (...) {
      error_.Set(std::current_exception());
    }
  }

  Event Record() override {
    const CudaGuard guard(device_);
    CudaEvent* const event = events_->Take([] { return std::make_unique<CudaEvent>(); });
    const Event recorded(event);
    CheckCuda(cudaEventRecord(event->event(), stream_), "recording an event");
    return recorded;
  }

  void Wait(const Event& event) override {
    if (event.state() == nullptr) {
      return;
    }
    const CudaGuard guard(device_);
    CheckCuda(cudaStreamWaitEvent(stream_, static_cast<const CudaEvent&>(*event.state()).event(), 0),
              "waiting for an event");
  }

  // Polls, because a call that blocks in the runtime would never return if a collective waits for a peer
  // that is gone.
  void Synchronize() override {
    try {
      Await(Record());
    } catch (...) {
      error_.Set(std::current_exception());
    }
    error_.RethrowIfSet();
  }

  void Synchronize(const Event& event) override {
    try {
      Await(event);
    } catch (...) {
      error_.Set(std::current_exception());
    }
    error_.RethrowIfSet();
  }

 private:
  void Await(const Event& event) const {
    while (!error_.is_set() && !event.IsReached()) {
      std::this_thread::sleep_for(kPoll);
    }
  }

  void KeepShort() {
    if (num_issued_ < kStreamAhead) {
      return;
    }
    Await(issued_[oldest_]);
    issued_[oldest_] = Event();
    oldest_ = (oldest_ + 1) % kStreamAhead;
    --num_issued_;
  }

  const c10::DeviceIndex device_;
  StreamError error_;
  cudaStream_t stream_ = nullptr;
  const std::shared_ptr<EventPool<CudaEvent>> events_ = std::make_shared<EventPool<CudaEvent>>();
  std::array<Event, kStreamAhead> issued_;  // a ring: the ends of the work that may be in flight
  size_t oldest_ = 0;
  size_t num_issued_ = 0;
};

}  // namespace

cudaStream_t CurrentCudaStream(int index) {
  return c10::cuda::getCurrentCUDAStream(static_cast<c10::DeviceIndex>(index)).stream();
}

CudaGuard::CudaGuard(int index) : index_(index) {
  cudaGetDevice(&before_);
  if (before_ != index_) {
    cudaSetDevice(index_);
  }
}

CudaGuard::~CudaGuard() {
  if (before_ != index_ && c10::cuda::hasPrimaryContext(static_cast<c10::DeviceIndex>(before_))) {
    cudaSetDevice(before_);
  }
}

std::unique_ptr<Stream> MakeCudaStream(int index, StreamPriority priority, StreamError error) {
  return std::make_unique<CudaStream>(index, priority, std::move(error));
}

}  // namespace tandem::device
