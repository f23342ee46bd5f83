#include <c10/core/InferenceMode.h>
#include <c10/cuda/CUDAGuard.h>
#include <c10/cuda/CUDAStream.h>
#include <cuda_runtime_api.h>

#include <chrono>
#include <deque>
#include <memory>
#include <stdexcept>
#include <thread>

#include "device/cuda/check.h"
#include "device/cuda/device.h"

namespace tandem::device {
namespace {

// How long a host that waits for a stream sleeps between two looks.
constexpr std::chrono::microseconds kPoll{20};

// Pieces of work that a stream may have to do still when the next one is issued. The driver takes about a
// thousand kernels a stream and then blocks the launching thread, and with it every other that asks it
// something: whoever is to notice that a peer is gone would hang as well.
constexpr size_t kAhead = 8;

class CudaEvent final : public Event::State {
 public:
  explicit CudaEvent(cudaStream_t stream) {
    CheckCuda(cudaEventCreateWithFlags(&event_, cudaEventDisableTiming), "making an event");
    const cudaError_t error = cudaEventRecord(event_, stream);
    if (error != cudaSuccess) {
      cudaEventDestroy(event_);
      CheckCuda(error, "recording an event");
    }
  }
  ~CudaEvent() override { cudaEventDestroy(event_); }

  cudaEvent_t event() const { return event_; }

  bool IsReached() override {
    const cudaError_t error = cudaEventQuery(event_);
    if (error == cudaErrorNotReady) return false;
    CheckCuda(error, "work on the GPU");
    return true;
  }

 private:
  cudaEvent_t event_ = nullptr;
};

class CudaStream final : public Stream {
 public:
  CudaStream(int index, Poison poison)
      : device_(static_cast<c10::DeviceIndex>(index)), poison_(std::move(poison)) {
    const c10::cuda::CUDAGuard guard(device_);
    CheckCuda(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking), "making a stream");
  }

  // Returns at once; the runtime lets go of the stream when its work is done.
  ~CudaStream() override {
    const c10::cuda::CUDAGuard guard(device_);
    cudaStreamDestroy(stream_);
  }

  void Enqueue(std::function<void()> work) override {
    if (poison_.is_set()) return;
    try {
      KeepShort();
      if (poison_.is_set()) return;
      // Neither graphs nor version counters; a node that wraps autograd lifts this inside itself.
      const c10::InferenceMode no_gradients;
      const c10::cuda::CUDAStreamGuard current(c10::cuda::getStreamFromExternal(stream_, device_));
      work();
      issued_.push_back(std::make_unique<CudaEvent>(stream_));
    } catch (...) {
      poison_.Set(std::current_exception());
    }
  }

  Event Record() override {
    const c10::cuda::CUDAGuard guard(device_);
    return Event(std::make_shared<CudaEvent>(stream_));
  }

  void Wait(const Event& event) override {
    if (event.state() == nullptr) return;
    const c10::cuda::CUDAGuard guard(device_);
    CheckCuda(cudaStreamWaitEvent(stream_, static_cast<CudaEvent&>(*event.state()).event(), 0),
              "waiting for an event");
  }

  // Looks instead of blocking in the runtime: a collective whose peer is gone never ends by itself.
  void Synchronize() override {
    try {
      const Event end = Record();
      while (!poison_.is_set() && !end.state()->IsReached()) {
        std::this_thread::sleep_for(kPoll);
      }
    } catch (...) {
      poison_.Set(std::current_exception());
    }
    poison_.RethrowIfSet();
  }

 private:
  void KeepShort() {
    while (issued_.size() >= kAhead && !poison_.is_set()) {
      if (issued_.front()->IsReached()) {
        issued_.pop_front();
      } else {
        std::this_thread::sleep_for(kPoll);
      }
    }
  }

  const c10::DeviceIndex device_;
  Poison poison_;
  cudaStream_t stream_ = nullptr;
  std::deque<std::unique_ptr<CudaEvent>> issued_;  // the ends of the work that may be under way
};

}  // namespace

std::unique_ptr<Stream> MakeCudaStream(int index, Poison poison) {
  return std::make_unique<CudaStream>(index, std::move(poison));
}

}  // namespace tandem::device
