#include "comm/nccl_communicator.h"

#include <ATen/core/Tensor.h>
#include <c10/cuda/CUDAGuard.h>
#include <c10/cuda/CUDAStream.h>
#include <cuda_runtime_api.h>
#include <nccl.h>

#include <atomic>
#include <chrono>
#include <cstring>
#include <deque>
#include <future>
#include <mutex>
#include <thread>
#include <utility>

#include "absl/time/clock.h"
#include "comm/collective.h"
#include "device/cuda/check.h"

namespace tandem::comm {
namespace {

constexpr std::chrono::microseconds kPoll{50};
constexpr std::chrono::milliseconds kAbortPatience{300};
constexpr std::chrono::milliseconds kLockPatience{100};
constexpr absl::Duration kFarewell = absl::Seconds(5);

std::string Text(ncclResult_t result, ncclComm_t comm) {
  std::string text = ncclGetErrorString(result);
  const char* const last = ncclGetLastError(comm);
  if (last != nullptr && last[0] != '\0') text += std::string(" (") + last + ")";
  return text;
}

ncclConfig_t Config(const std::string& name) {
  ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
  config.blocking = 0;
  config.splitShare = 0;
  config.commName = name.c_str();
  return config;
}

// A collective that has been started, and the point in the stream behind it.
struct Pending {
  const char* operation = "";
  uint64_t sequence = 0;
  cudaEvent_t end = nullptr;
};

class NcclCommunicator final : public Communicator {
 public:
  // Waits until `start`, which begins to make a communicator, has succeeded.
  template <typename Start>
  NcclCommunicator(std::string name, int rank, int size, int device, absl::Duration timeout,
                   const Start& start)
      : name_(std::move(name)), rank_(rank), size_(size), device_(device), timeout_(timeout) {
    const c10::cuda::CUDAGuard guard(static_cast<c10::DeviceIndex>(device_));
    const std::string where = Where("creation");
    ncclConfig_t config = Config(name_);
    Check(start(&comm_, &config), where);
    AwaitStart(where);
  }

  ~NcclCommunicator() override {
    const c10::cuda::CUDAGuard guard(static_cast<c10::DeviceIndex>(device_));
    try {
      Farewell();
    } catch (const CommError&) {
      Abort();
    }
    for (const Pending& pending : pending_) cudaEventDestroy(pending.end);
  }

  const std::string& name() const override { return name_; }
  int rank() const override { return rank_; }
  int size() const override { return size_; }
  int device() const { return device_; }
  absl::Duration timeout() const { return timeout_; }

  void AllGather(const at::Tensor& input, at::Tensor& output) override {
    const Collective call = CheckAllGather(name_, size_, input, output);
    Start(call, input, output, [&](ncclComm_t comm, cudaStream_t stream) {
      return ncclAllGather(call.input, call.output, static_cast<size_t>(call.slice), ncclInt8, comm, stream);
    });
  }

  void AllToAll(const at::Tensor& input, at::Tensor& output) override {
    const Collective call = CheckAllToAll(name_, size_, input, output);
    Start(call, input, output, [&](ncclComm_t comm, cudaStream_t stream) {
      const auto bytes = static_cast<size_t>(call.slice);
      ncclResult_t result = ncclGroupStart();
      for (int peer = 0; peer < size_ && Fine(result); ++peer) {
        result = ncclSend(call.input + peer * call.slice, bytes, ncclInt8, peer, comm, stream);
        if (Fine(result)) {
          result = ncclRecv(call.output + peer * call.slice, bytes, ncclInt8, peer, comm, stream);
        }
      }
      const ncclResult_t end = ncclGroupEnd();
      return Fine(result) ? end : result;
    });
  }

  // The call into NCCL has a thread of its own: it waits for kernels, which see that they are to end, and for
  // what else it may. Where a call is stuck inside NCCL, because the GPU takes no more work, there is nothing
  // that could be aborted beside it.
  void Abort() override {
    ncclComm_t comm = nullptr;
    {
      const std::unique_lock lock(mu_, kLockPatience);
      if (!lock.owns_lock()) return;
      comm = std::exchange(comm_, nullptr);
    }
    if (comm == nullptr) return;
    std::promise<void> done;
    std::future<void> ended = done.get_future();
    std::thread([comm, device = device_, done = std::move(done)]() mutable {
      cudaSetDevice(device);
      ncclCommAbort(comm);
      done.set_value();
    }).detach();
    ended.wait_for(kAbortPatience);
  }

  void CheckPending() override {
    const std::unique_lock lock(mu_, std::try_to_lock);
    if (!lock.owns_lock() || comm_ == nullptr) return;  // a call is starting: the next look sees it
    Prune();
    ncclResult_t state = ncclSuccess;
    ncclCommGetAsyncError(comm_, &state);
    const std::string where = Where(pending_.empty() ? "idle" : pending_.front().operation);
    Check(state, where);
    if (!pending_.empty() && absl::Now() - oldest_since_ > timeout_) {
      throw CommError(where + " number " + std::to_string(pending_.front().sequence) +
                      ": not all ranks took part within " + absl::FormatDuration(timeout_));
    }
  }

  uint64_t num_collectives() const override { return num_collectives_; }

  uint64_t num_ended() const override { return num_ended_; }

  // Begins to make a clone; for its constructor.
  ncclResult_t Split(ncclComm_t* clone, ncclConfig_t* config) {
    const std::string where = Where("clone");
    {
      const std::lock_guard lock(mu_);
      ThrowIfAborted(where);
      Check(ncclCommSplit(comm_, 0, rank_, clone, config), where);
    }
    AwaitStart(where);  // `clone` is set from here on
    return ncclSuccess;
  }

 private:
  static bool Fine(ncclResult_t result) { return result == ncclSuccess || result == ncclInProgress; }

  std::string Where(const std::string& operation) const {
    return "group " + name_ + " rank " + std::to_string(rank_) + " " + operation;
  }

  void Check(ncclResult_t result, const std::string& where) const {
    if (!Fine(result)) throw CommError(where + ": NCCL: " + Text(result, comm_));
  }

  // Requires mu_.
  void ThrowIfAborted(const std::string& where) const {
    if (comm_ == nullptr) throw CommError(where + ": aborted");
  }

  // NCCL may still be at work after a call: setting up connections takes the peers.
  void AwaitStart(const std::string& where, absl::Duration patience) {
    const absl::Time deadline = absl::Now() + patience;
    while (true) {
      {
        const std::lock_guard lock(mu_);
        ThrowIfAborted(where);
        ncclResult_t state = ncclSuccess;
        ncclCommGetAsyncError(comm_, &state);
        Check(state, where);
        if (state == ncclSuccess) return;
      }
      if (absl::Now() > deadline) {
        throw CommError(where + ": not all ranks took part within " + absl::FormatDuration(patience));
      }
      std::this_thread::sleep_for(kPoll);
    }
  }
  void AwaitStart(const std::string& where) { AwaitStart(where, timeout_); }

  template <typename Launch>
  void Start(const Collective& call, const at::Tensor& input, const at::Tensor& output,
             const Launch& launch) {
    const std::string where = Where(call.operation);
    if (!input.is_cuda() || !output.is_cuda() || input.get_device() != device_ ||
        output.get_device() != device_) {
      throw std::invalid_argument(where + ": tensors must be on GPU " + std::to_string(device_));
    }
    const c10::cuda::CUDAGuard guard(static_cast<c10::DeviceIndex>(device_));
    const cudaStream_t stream = c10::cuda::getCurrentCUDAStream().stream();
    const uint64_t sequence = num_collectives_;
    if (call.slice == 0) {
      ++num_collectives_;
      return;
    }
    {
      const std::lock_guard lock(mu_);
      ThrowIfAborted(where);
      Check(launch(comm_, stream), where);
    }
    AwaitStart(where);
    Pending pending{.operation = call.operation, .sequence = sequence};
    device::CheckCuda(cudaEventCreateWithFlags(&pending.end, cudaEventDisableTiming), "making an event");
    device::CheckCuda(cudaEventRecord(pending.end, stream), "recording an event");
    const std::lock_guard lock(mu_);
    if (pending_.empty()) oldest_since_ = absl::Now();
    pending_.push_back(pending);
    ++num_collectives_;
  }

  // Requires mu_. Forgets what has ended; an error of the GPU is for the stream to tell.
  void Prune() {
    while (!pending_.empty() && cudaEventQuery(pending_.front().end) == cudaSuccess) {
      cudaEventDestroy(pending_.front().end);
      pending_.pop_front();
      oldest_since_ = absl::Now();
    }
    num_ended_ = num_collectives_ - pending_.size();
  }

  void Farewell() {
    ncclComm_t comm = nullptr;
    const std::string where = Where("end");
    {
      const std::lock_guard lock(mu_);
      if (comm_ == nullptr) return;
      Check(ncclCommFinalize(comm_), where);
    }
    AwaitStart(where, kFarewell);
    {
      const std::lock_guard lock(mu_);
      comm = std::exchange(comm_, nullptr);
    }
    if (comm != nullptr) ncclCommDestroy(comm);
  }

  const std::string name_;
  const int rank_;
  const int size_;
  const int device_;
  const absl::Duration timeout_;
  // Held for calls into NCCL. None waits for a peer, but a GPU that waits for one may take no more work, and
  // then a call hangs that should not: who watches or aborts must not wait for this for long.
  std::timed_mutex mu_;
  ncclComm_t comm_ = nullptr;
  std::deque<Pending> pending_;  // mu_
  absl::Time oldest_since_;      // since when the first of them is the first; mu_
  std::atomic<uint64_t> num_collectives_{0};
  std::atomic<uint64_t> num_ended_{0};
};

}  // namespace

std::unique_ptr<Communicator> MakeNcclCommunicator(const std::string& name, Store& store,
                                                   const std::string& prefix, int rank, int size, int device,
                                                   absl::Duration timeout) {
  const std::string key = prefix + "/nccl";
  ncclUniqueId id;
  if (rank == 0) {
    const ncclResult_t result = ncclGetUniqueId(&id);
    if (result != ncclSuccess) {
      throw CommError("group " + name + " rank 0 creation: NCCL: " + Text(result, nullptr));
    }
    store.Set(key, std::string(id.internal, sizeof(id.internal)));
  } else {
    const std::string value = store.Get(key, absl::Now() + timeout);
    if (value.size() != sizeof(id.internal)) {
      throw CommError("group " + name + ": the rendezvous holds no id of NCCL under " + key);
    }
    std::memcpy(id.internal, value.data(), value.size());
  }
  return std::make_unique<NcclCommunicator>(name, rank, size, device, timeout,
                                            [&](ncclComm_t* comm, ncclConfig_t* config) {
                                              return ncclCommInitRankConfig(comm, size, id, rank, config);
                                            });
}

std::unique_ptr<Communicator> CloneNcclCommunicator(const std::string& name, Communicator& parent) {
  auto* const live = dynamic_cast<NcclCommunicator*>(&parent);
  if (live == nullptr) throw std::logic_error("group " + parent.name() + " is no group of NCCL");
  return std::make_unique<NcclCommunicator>(
      name, live->rank(), live->size(), live->device(), live->timeout(),
      [&](ncclComm_t* comm, ncclConfig_t* config) { return live->Split(comm, config); });
}

}  // namespace tandem::comm
