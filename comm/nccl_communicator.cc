// SPDX-License-Identifier: Apache-2.0
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
#include <optional>
#include <thread>
#include <utility>
#include <vector>

#include "absl/time/time.h"
#include "comm/collective.h"
#include "device/cuda/check.h"
#include "device/device.h"
#include "platform/clock.h"

namespace tandem::comm {
namespace {

constexpr std::chrono::microseconds kPoll{50};
constexpr std::chrono::milliseconds kAbortPatience{300};
constexpr std::chrono::milliseconds kLockPatience{100};
constexpr absl::Duration kFarewell = absl::Seconds(5);

std::string Text(ncclResult_t result, ncclComm_t comm) {
  std::string text = ncclGetErrorString(result);
  const char* const last = ncclGetLastError(comm);
  if (last != nullptr && last[0] != '\0') {
    text += std::string(" (") + last + ")";
  }
  return text;
}

// Points into its arguments. The priority is the stream's that collectives are enqueued on. Copy engines move
// what they can, between registered windows, and leave the multiprocessors to compute; where thread blocks
// are asked for, these do.
ncclConfig_t Config(const std::string& name, const parallel::GroupOptions& options) {
  ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
  config.blocking = 0;
  config.splitShare = 0;
  config.commName = name.c_str();
  if (options.cga_cluster_size) {
    config.cgaClusterSize = *options.cga_cluster_size;
  }
  if (options.min_ctas) {
    config.minCTAs = *options.min_ctas;
  }
  if (const int most = parallel::MostCtas(options); most > 0) {
    config.maxCTAs = most;  // NCCL takes an unset maximum for one below the minimum
  } else {
    config.CTAPolicy = NCCL_CTA_POLICY_ZERO;
  }
  if (!options.net_name.empty()) {
    config.netName = options.net_name.c_str();
  }
  return config;
}

// A collective that has been started, and the points in the stream before and behind it.
struct Pending {
  const char* operation = "";
  uint64_t sequence = 0;
  cudaEvent_t begin = nullptr;
  cudaEvent_t end = nullptr;
};

// Memory that NCCL can register.
class NcclRegion final : public device::Region {
 public:
  NcclRegion(int device, int64_t bytes) : device_(device), bytes_(bytes) {
    if (bytes_ == 0) {
      return;
    }
    const c10::cuda::CUDAGuard guard(static_cast<c10::DeviceIndex>(device_));
    const ncclResult_t result = ncclMemAlloc(&begin_, static_cast<size_t>(bytes_));
    if (result != ncclSuccess) {
      size_t free = 0;
      size_t total = 0;
      cudaGetLastError();
      device::CheckCuda(cudaMemGetInfo(&free, &total), "memory of the GPU");
      throw device::OutOfMemory("GPU " + std::to_string(device_) + " has " + std::to_string(free) + " of " +
                                std::to_string(total) + " bytes free, the job needs " +
                                std::to_string(bytes_) + " of them (NCCL: " + Text(result, nullptr) + ")");
    }
  }
  ~NcclRegion() override {
    if (begin_ == nullptr) {
      return;
    }
    const c10::cuda::CUDAGuard guard(static_cast<c10::DeviceIndex>(device_));
    ncclMemFree(begin_);
  }

  char* begin() const override { return static_cast<char*>(begin_); }
  int64_t bytes() const override { return bytes_; }

 private:
  const int device_;
  const int64_t bytes_;
  void* begin_ = nullptr;
};

class NcclCommunicator final : public Communicator {
 public:
  // Waits until `start`, which begins to make a communicator, has succeeded.
  template <typename Start>
  NcclCommunicator(std::string name, int rank, int size, int job_rank, int device, absl::Duration timeout,
                   const parallel::GroupOptions& options, const Start& start)
      : name_(std::move(name)),
        rank_(rank),
        size_(size),
        job_rank_(job_rank),
        device_(device),
        timeout_(timeout) {
    const c10::cuda::CUDAGuard guard(static_cast<c10::DeviceIndex>(device_));
    const std::string where = Where("creation");
    ncclConfig_t config = Config(name_, options);
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
    for (cudaEvent_t event : events_) {
      cudaEventDestroy(event);
    }
  }

  const std::string& name() const override { return name_; }
  int rank() const override { return rank_; }
  int size() const override { return size_; }
  int job_rank() const { return job_rank_; }
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
      return ncclAlltoAll(call.input, call.output, static_cast<size_t>(call.slice), ncclInt8, comm, stream);
    });
  }

  // What is for each rank, to it: copy engines take slices of one size alone.
  void AllToAllRows(const at::Tensor& input, const std::vector<int64_t>& sends, at::Tensor& output,
                    const std::vector<int64_t>& receives) override {
    const Collective call = CheckAllToAllRows(name_, size_, input, sends, output, receives);
    Start(call, input, output, [&](ncclComm_t comm, cudaStream_t stream) {
      ncclResult_t result = ncclGroupStart();
      for (int peer = 0; peer < size_ && IsOk(result); ++peer) {
        if (call.BytesTo(peer) > 0) {
          result = ncclSend(call.InputFor(peer), static_cast<size_t>(call.BytesTo(peer)), ncclInt8, peer,
                            comm, stream);
        }
        if (IsOk(result) && call.BytesFrom(peer) > 0) {
          result = ncclRecv(call.OutputOf(peer), static_cast<size_t>(call.BytesFrom(peer)), ncclInt8, peer,
                            comm, stream);
        }
      }
      const ncclResult_t end = ncclGroupEnd();
      return IsOk(result) ? end : result;
    });
  }

  void Gather(const at::Tensor& input, at::Tensor& output) override {
    const Collective call = CheckGather(name_, rank_, size_, input, output);
    Start(call, input, rank_ == 0 ? output : input, [&](ncclComm_t comm, cudaStream_t stream) {
      const auto bytes = static_cast<size_t>(call.slice);
      ncclResult_t result = ncclGroupStart();
      for (int peer = 0; peer < size_ && rank_ == 0 && IsOk(result); ++peer) {
        result = ncclRecv(call.output + peer * call.slice, bytes, ncclInt8, peer, comm, stream);
      }
      if (IsOk(result)) {
        result = ncclSend(call.input, bytes, ncclInt8, /*peer=*/0, comm, stream);
      }
      const ncclResult_t end = ncclGroupEnd();
      return IsOk(result) ? end : result;
    });
  }

  absl::Status RegisterWindow(std::shared_ptr<const device::Region> region) override {
    const c10::cuda::CUDAGuard guard(static_cast<c10::DeviceIndex>(device_));
    const std::string where = Where("registration of a window");
    // Other memory makes NCCL fail in a way that leaves the communicator useless.
    if (dynamic_cast<const NcclRegion*>(region.get()) == nullptr) {
      return absl::FailedPreconditionError(where + ": NCCL did not allocate this memory");
    }
    ncclWindow_t window = nullptr;
    {
      const std::lock_guard lock(mu_);
      ThrowIfAborted(where);
      const ncclResult_t result = ncclCommWindowRegister(
          comm_, region->begin(), static_cast<size_t>(region->bytes()), &window, NCCL_WIN_COLL_SYMMETRIC);
      if (result == ncclInvalidArgument || result == ncclInvalidUsage) {
        return absl::FailedPreconditionError(where + ": NCCL: " + Text(result, comm_));
      }
      Check(result, where);
    }
    AwaitStart(where);
    if (window == nullptr) {
      return absl::FailedPreconditionError(where +
                                           ": NCCL makes none between these GPUs, or of memory of this kind");
    }
    windows_.push_back({window, std::move(region)});
    return absl::OkStatus();
  }

  // The call into NCCL has a thread of its own: it waits for kernels, which see that they are to end, and for
  // what else it may. A collective of copy engines sees nothing: the GPU waits for its peers' flags in
  // memory, for good where a peer is gone, and only the end of the process ends it. Where a call is stuck
  // inside NCCL, because the GPU takes no more work, there is nothing that could be aborted beside it.
  void Abort() override {
    ncclComm_t comm = nullptr;
    {
      const std::unique_lock lock(mu_, kLockPatience);
      if (!lock.owns_lock()) {
        return;
      }
      comm = std::exchange(comm_, nullptr);
    }
    if (comm == nullptr) {
      return;
    }
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
    if (!lock.owns_lock() || comm_ == nullptr) {
      return;  // a call is starting: the next look sees it
    }
    Prune();
    ncclResult_t state = ncclSuccess;
    ncclCommGetAsyncError(comm_, &state);
    const std::string where = Where(pending_.empty() ? "idle" : pending_.front().operation);
    Check(state, where);
    if (IsLate()) {
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
  static bool IsOk(ncclResult_t result) { return result == ncclSuccess || result == ncclInProgress; }

  std::string Where(const std::string& operation) const {
    return "group " + name_ + " rank " + std::to_string(job_rank_) + " " + operation;
  }

  void Check(ncclResult_t result, const std::string& where) const {
    if (!IsOk(result)) {
      throw CommError(where + ": NCCL: " + Text(result, comm_));
    }
  }

  // Requires mu_.
  void ThrowIfAborted(const std::string& where) const {
    if (comm_ == nullptr) {
      throw CommError(where + ": aborted");
    }
  }

  // NCCL may still be at work after a call: setting up connections takes the peers.
  void AwaitStart(const std::string& where, absl::Duration patience) {
    const absl::Time deadline = platform::SteadyClock().Now() + patience;
    while (true) {
      {
        const std::lock_guard lock(mu_);
        ThrowIfAborted(where);
        ncclResult_t state = ncclSuccess;
        ncclCommGetAsyncError(comm_, &state);
        Check(state, where);
        if (state == ncclSuccess) {
          return;
        }
      }
      if (platform::SteadyClock().Now() > deadline) {
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
    if (call.IsEmpty()) {
      ++num_collectives_;
      return;
    }
    Pending pending{.operation = call.operation, .sequence = sequence};
    {
      const std::lock_guard lock(mu_);
      ThrowIfAborted(where);
      pending.begin = Mark(stream);
      Check(launch(comm_, stream), where);
    }
    AwaitStart(where);
    const std::lock_guard lock(mu_);
    pending.end = Mark(stream);
    pending_.push_back(pending);
    ++num_collectives_;
  }

  // Requires mu_. An event behind all that `stream` has been given.
  cudaEvent_t Mark(cudaStream_t stream) {
    if (free_events_.empty()) {
      cudaEvent_t made = nullptr;
      device::CheckCuda(cudaEventCreateWithFlags(&made, cudaEventDisableTiming), "making an event");
      events_.push_back(made);
      free_events_.push_back(made);
    }
    const cudaEvent_t event = free_events_.back();
    free_events_.pop_back();
    device::CheckCuda(cudaEventRecord(event, stream), "recording an event");
    return event;
  }

  // Requires mu_. Forgets what has ended; the stream reports errors of the GPU.
  void Prune() {
    while (!pending_.empty() && cudaEventQuery(pending_.front().end) == cudaSuccess) {
      free_events_.push_back(pending_.front().begin);
      free_events_.push_back(pending_.front().end);
      pending_.pop_front();
      oldest_reached_.reset();
    }
    num_ended_ = num_collectives_ - pending_.size();
  }

  // Requires mu_, and Prune. Runs are enqueued ahead of the GPU: a collective may be pending for a whole step
  // before the GPU comes to it, and no peer is missing meanwhile.
  bool IsLate() {
    if (pending_.empty()) {
      return false;
    }
    const absl::Time now = platform::SteadyClock().Now();
    if (!oldest_reached_ && cudaEventQuery(pending_.front().begin) == cudaSuccess) {
      oldest_reached_ = now;
    }
    return oldest_reached_ && now - *oldest_reached_ > timeout_;
  }

  void Farewell() {
    ncclComm_t comm = nullptr;
    const std::string where = Where("end");
    for (const Window& window : windows_) {
      {
        const std::lock_guard lock(mu_);
        if (comm_ == nullptr) {
          return;
        }
        Check(ncclCommWindowDeregister(comm_, window.window), where);
      }
      AwaitStart(where, kFarewell);
    }
    {
      const std::lock_guard lock(mu_);
      if (comm_ == nullptr) {
        return;
      }
      Check(ncclCommFinalize(comm_), where);
    }
    AwaitStart(where, kFarewell);
    {
      const std::lock_guard lock(mu_);
      comm = std::exchange(comm_, nullptr);
    }
    if (comm != nullptr) {
      ncclCommDestroy(comm);
    }
  }

  const std::string name_;
  const int rank_;
  const int size_;
  const int job_rank_;
  const int device_;
  const absl::Duration timeout_;
  // Held for calls into NCCL. None waits for a peer, but a GPU that waits for one may take no more work, and
  // then a call hangs that should not: who watches or aborts must not wait for this for long.
  std::timed_mutex mu_;
  ncclComm_t comm_ = nullptr;
  struct Window {
    ncclWindow_t window = nullptr;
    std::shared_ptr<const device::Region> region;  // is there as long as the window
  };
  std::vector<Window> windows_;
  std::deque<Pending> pending_;               // mu_
  std::vector<cudaEvent_t> events_;           // all that were made; mu_
  std::vector<cudaEvent_t> free_events_;      // those of collectives that have ended; mu_
  std::optional<absl::Time> oldest_reached_;  // since when the GPU is at the first that is pending; mu_
  std::atomic<uint64_t> num_collectives_{0};
  std::atomic<uint64_t> num_ended_{0};
};

class NcclFactory final : public CommunicatorFactory {
 public:
  NcclFactory(Rendezvous rendezvous, int device) : rendezvous_(std::move(rendezvous)), device_(device) {}

  std::unique_ptr<Communicator> Make(const Membership& membership, Communicator* live) override {
    TakeMultiprocessors(membership);
    if (live != nullptr) {
      return CloneNcclCommunicator(membership.group, *live, membership.options);
    }
    return MakeNcclCommunicator(membership.group, *rendezvous_.store, membership.prefix, membership.rank,
                                membership.size, device_, rendezvous_.timeout, membership.options,
                                membership.ranks.empty()
                                    ? membership.rank
                                    : membership.ranks.at(static_cast<size_t>(membership.rank)));
  }
  std::unique_ptr<device::Region> Reserve(device::Device&, int64_t bytes) override {
    return std::make_unique<NcclRegion>(device_, bytes);
  }

 private:
  // Collectives of all communicators may run at once. Where their thread blocks do not fit beside each other,
  // two ranks may each start another one first and wait forever.
  void TakeMultiprocessors(const Membership& membership) {
    int multiprocessors = 0;
    device::CheckCuda(cudaDeviceGetAttribute(&multiprocessors, cudaDevAttrMultiProcessorCount, device_),
                      "multiprocessors of the GPU");
    ctas_ += membership.size > 1 ? parallel::MostCtas(membership.options) : 0;
    if (ctas_ > multiprocessors) {
      throw CommError("group " + membership.group + ": with it, collectives that run at once take up to " +
                      std::to_string(ctas_) + " thread blocks, and the GPU has " +
                      std::to_string(multiprocessors) +
                      " multiprocessors: they could wait for each other forever; lower max_ctas of "
                      "parallelism.nccl (min_ctas without it counts as " +
                      std::to_string(parallel::kMostCtas) + ")");
    }
  }

  const Rendezvous rendezvous_;
  const int device_;
  int ctas_ = 0;  // of the communicators made so far
};

}  // namespace

std::unique_ptr<CommunicatorFactory> MakeNcclFactory(Rendezvous rendezvous, int device) {
  return std::make_unique<NcclFactory>(std::move(rendezvous), device);
}

std::unique_ptr<Communicator> MakeNcclCommunicator(const std::string& name, Store& store,
                                                   const std::string& prefix, int rank, int size, int device,
                                                   absl::Duration timeout,
                                                   const parallel::GroupOptions& options,
                                                   std::optional<int> job_rank) {
  const std::string key = prefix + "/nccl";
  ncclUniqueId id;
  if (rank == 0) {
    const ncclResult_t result = ncclGetUniqueId(&id);
    if (result != ncclSuccess) {
      throw CommError("group " + name + " rank 0 creation: NCCL: " + Text(result, nullptr));
    }
    store.Set(key, std::string(id.internal, sizeof(id.internal)));
  } else {
    const std::string value = store.Get(key, timeout);
    if (value.size() != sizeof(id.internal)) {
      throw CommError("group " + name + ": the rendezvous holds no id of NCCL under " + key);
    }
    std::memcpy(id.internal, value.data(), value.size());
  }
  return std::make_unique<NcclCommunicator>(name, rank, size, job_rank.value_or(rank), device, timeout,
                                            options, [&](ncclComm_t* comm, ncclConfig_t* config) {
                                              return ncclCommInitRankConfig(comm, size, id, rank, config);
                                            });
}

std::unique_ptr<Communicator> CloneNcclCommunicator(const std::string& name, Communicator& parent,
                                                    const parallel::GroupOptions& options) {
  auto* const live = dynamic_cast<NcclCommunicator*>(&parent);
  if (live == nullptr) {
    throw std::logic_error("group " + parent.name() + " is not an NCCL group");
  }
  return std::make_unique<NcclCommunicator>(
      name, live->rank(), live->size(), live->job_rank(), live->device(), live->timeout(), options,
      [&](ncclComm_t* comm, ncclConfig_t* config) { return live->Split(comm, config); });
}

}  // namespace tandem::comm
