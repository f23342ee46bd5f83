// SPDX-License-Identifier: Apache-2.0
#include "comm/nccl_communicator.h"

#include <chrono>
#include <cstddef>
#include <future>
#include <stdexcept>
#include <thread>
#include <utility>

#include "comm/collective.h"
#include "comm/nccl_error.h"
#include "comm/nccl_memory.h"
#include "device/cuda/check.h"
#include "device/cuda/current.h"
#include "device/device.h"
#include "platform/clock.h"

namespace tandem::comm {
namespace {

constexpr std::chrono::microseconds kPoll{50};
constexpr std::chrono::milliseconds kAbortPatience{300};
constexpr absl::Duration kLockPatience = absl::Milliseconds(100);
constexpr absl::Duration kFarewell = absl::Seconds(5);

// Unlocks at the end of its scope a mutex that TryLock has locked.
class ABSL_SCOPED_LOCKABLE TakenLock {
 public:
  explicit TakenLock(absl::Mutex* mu) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu) : mu_(mu) {}
  ~TakenLock() ABSL_UNLOCK_FUNCTION() { mu_->Unlock(); }
  TakenLock(const TakenLock&) = delete;
  TakenLock& operator=(const TakenLock&) = delete;

 private:
  absl::Mutex* const mu_;
};

bool IsOk(ncclResult_t result) { return result == ncclSuccess || result == ncclInProgress; }

// Points into its arguments. The priority is the stream's that collectives are enqueued on. Copy engines move
// what they can, between registered windows, and leave the multiprocessors to compute; where thread blocks
// are asked for, these do.
ncclConfig_t Config(const std::string& name, const parallel::GroupOptions& options, int ctas) {
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
    if (ctas > 0) {
      config.maxCTAs = ctas;  // of what copy engines do not move
    }
  }
  if (!options.net_name.empty()) {
    config.netName = options.net_name.c_str();
  }
  return config;
}

}  // namespace

NcclCommunicator::NcclCommunicator(std::string name, int rank, int size, int job_rank, int device,
                                   absl::Duration timeout, const parallel::GroupOptions& options, int ctas,
                                   const Begin& begin)
    : name_(std::move(name)),
      rank_(rank),
      size_(size),
      job_rank_(job_rank),
      device_(device),
      timeout_(timeout) {
  const device::CudaGuard guard(device_);
  const std::string where = Where("creation");
  ncclConfig_t config = Config(name_, options, ctas);
  Check(begin(&comm_, &config), where);
  AwaitStart(where);
}

NcclCommunicator::~NcclCommunicator() {
  const device::CudaGuard guard(device_);
  try {
    Farewell();
  } catch (const CommError&) {
    Abort();
  }
  for (cudaEvent_t event : events_) {
    cudaEventDestroy(event);
  }
}

ncclResult_t NcclCommunicator::Split(ncclComm_t* clone, ncclConfig_t* config) {
  const std::string where = Where("clone");
  {
    const absl::MutexLock lock(&mu_);
    ThrowIfAborted(where);
    Check(ncclCommSplit(comm_, 0, rank_, clone, config), where);
  }
  AwaitStart(where);  // `clone` is set from here on
  return ncclSuccess;
}

std::string NcclCommunicator::Where(const std::string& operation) const {
  return "group " + name_ + " rank " + std::to_string(job_rank_) + " " + operation;
}

void NcclCommunicator::Check(ncclResult_t result, const std::string& where) const {
  if (!IsOk(result)) {
    throw CommError(where + ": NCCL: " + NcclErrorText(result, comm_));
  }
}

void NcclCommunicator::ThrowIfAborted(const std::string& where) const {
  if (comm_ == nullptr) {
    throw CommError(where + ": aborted");
  }
}

void NcclCommunicator::AwaitStart(const std::string& where, absl::Duration patience) {
  const absl::Time deadline = platform::SteadyClock().Now() + patience;
  while (true) {
    {
      const absl::MutexLock lock(&mu_);
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

// absl::Mutex waits by the machine's clock where it waits with a limit, so this asks again and again.
bool NcclCommunicator::LockWithin(absl::Duration patience) ABSL_NO_THREAD_SAFETY_ANALYSIS {
  const absl::Time deadline = platform::SteadyClock().Now() + patience;
  while (!mu_.TryLock()) {
    if (platform::SteadyClock().Now() > deadline) {
      return false;
    }
    std::this_thread::sleep_for(kPoll);
  }
  return true;
}

template <typename Launch>
void NcclCommunicator::Start(const Collective& call, const Launch& launch) {
  const std::string where = Where(call.operation);
  const device::CudaGuard guard(device_);
  const cudaStream_t stream = device::CurrentCudaStream(device_);
  const uint64_t sequence = num_collectives_;
  if (call.IsEmpty()) {
    ++num_collectives_;
    return;
  }
  Pending pending{.operation = call.operation, .sequence = sequence};
  {
    const absl::MutexLock lock(&mu_);
    ThrowIfAborted(where);
    pending.begin = Mark(stream);
    Check(launch(comm_, stream), where);
  }
  AwaitStart(where);
  const absl::MutexLock lock(&mu_);
  pending.end = Mark(stream);
  pending_.push_back(pending);
  ++num_collectives_;
}

cudaEvent_t NcclCommunicator::Mark(cudaStream_t stream) {
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

void NcclCommunicator::Prune() {
  while (!pending_.empty() && cudaEventQuery(pending_.front().end) == cudaSuccess) {
    free_events_.push_back(pending_.front().begin);
    free_events_.push_back(pending_.front().end);
    pending_.pop_front();
    oldest_reached_.reset();
  }
  num_ended_ = num_collectives_ - pending_.size();
}

bool NcclCommunicator::IsLate() {
  if (pending_.empty()) {
    return false;
  }
  const absl::Time now = platform::SteadyClock().Now();
  if (!oldest_reached_ && cudaEventQuery(pending_.front().begin) == cudaSuccess) {
    oldest_reached_ = now;
  }
  return oldest_reached_ && now - *oldest_reached_ > timeout_;
}

void NcclCommunicator::Farewell() {
  ncclComm_t comm = nullptr;
  const std::string where = Where("end");
  for (const Window& window : windows_) {
    {
      const absl::MutexLock lock(&mu_);
      if (comm_ == nullptr) {
        return;
      }
      Check(ncclCommWindowDeregister(comm_, window.window), where);
    }
    AwaitStart(where, kFarewell);
  }
  {
    const absl::MutexLock lock(&mu_);
    if (comm_ == nullptr) {
      return;
    }
    Check(ncclCommFinalize(comm_), where);
  }
  AwaitStart(where, kFarewell);
  {
    const absl::MutexLock lock(&mu_);
    comm = std::exchange(comm_, nullptr);
  }
  if (comm != nullptr) {
    ncclCommDestroy(comm);
  }
}

void NcclCommunicator::AllGather(Memory input, Memory output) {
  const Collective call = CheckAllGather(name_, size_, input, output);
  Start(call, [&](ncclComm_t comm, cudaStream_t stream) {
    return ncclAllGather(call.input, call.output, static_cast<size_t>(call.slice), ncclInt8, comm, stream);
  });
}

void NcclCommunicator::AllToAll(Memory input, Memory output) {
  const Collective call = CheckAllToAll(name_, size_, input, output);
  Start(call, [&](ncclComm_t comm, cudaStream_t stream) {
    return ncclAlltoAll(call.input, call.output, static_cast<size_t>(call.slice), ncclInt8, comm, stream);
  });
}

void NcclCommunicator::AllToAllRows(Memory input, const std::vector<int64_t>& sends, Memory output,
                                    const std::vector<int64_t>& receives, int64_t row_bytes) {
  Exchange(CheckAllToAllRows(name_, size_, input, sends, output, receives, row_bytes));
}

void NcclCommunicator::Gather(Memory input, Memory output) {
  Exchange(CheckGather(name_, rank_, size_, input, output));
}

void NcclCommunicator::Send(Memory input) { Exchange(CheckSend(name_, rank_, size_, input)); }

void NcclCommunicator::Receive(Memory output) { Exchange(CheckReceive(name_, rank_, size_, output)); }

// Copy engines take slices of one size alone.
void NcclCommunicator::Exchange(const Collective& call) {
  Start(call, [&](ncclComm_t comm, cudaStream_t stream) {
    ncclResult_t result = ncclGroupStart();
    for (int peer = 0; peer < size_ && IsOk(result); ++peer) {
      if (call.BytesTo(peer) > 0) {
        result = ncclSend(call.InputFor(peer), static_cast<size_t>(call.BytesTo(peer)), ncclInt8, peer, comm,
                          stream);
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

absl::Status NcclCommunicator::RegisterWindow(std::shared_ptr<const device::Region> region) {
  const device::CudaGuard guard(device_);
  const std::string where = Where("registration of a window");
  // Other memory makes NCCL fail in a way that leaves the communicator useless.
  if (dynamic_cast<const NcclRegion*>(region.get()) == nullptr) {
    return absl::FailedPreconditionError(where + ": NCCL did not allocate this memory");
  }
  ncclWindow_t window = nullptr;
  {
    const absl::MutexLock lock(&mu_);
    ThrowIfAborted(where);
    const ncclResult_t result = ncclCommWindowRegister(
        comm_, region->begin(), static_cast<size_t>(region->bytes()), &window, NCCL_WIN_COLL_SYMMETRIC);
    if (result == ncclInvalidArgument || result == ncclInvalidUsage) {
      return absl::FailedPreconditionError(where + ": NCCL: " + NcclErrorText(result, comm_));
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
void NcclCommunicator::Abort() {
  if (!LockWithin(kLockPatience)) {
    return;
  }
  ncclComm_t const comm = std::exchange(comm_, nullptr);
  mu_.Unlock();
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

void NcclCommunicator::CheckPending() {
  if (!mu_.TryLock()) {
    return;  // a call is starting: the next look sees it
  }
  const TakenLock lock(&mu_);
  if (comm_ == nullptr) {
    return;
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

}  // namespace tandem::comm
