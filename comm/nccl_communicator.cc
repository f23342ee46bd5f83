// SPDX-License-Identifier: Apache-2.0
#include "comm/nccl_communicator.h"

#include <cstddef>
#include <exception>
#include <future>
#include <stdexcept>
#include <thread>
#include <utility>

#include "absl/cleanup/cleanup.h"
#include "comm/collective.h"
#include "comm/nccl_error.h"
#include "comm/nccl_memory.h"
#include "device/cuda/check.h"
#include "device/cuda/current.h"
#include "device/device.h"
#include "platform/clock.h"

namespace tandem::comm {
namespace {

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

// The result points into the arguments, as NCCL does while the communicator lives. Calls block, because NCCL
// would start a thread for each call that does not, and a step has hundreds. The priority is that of the
// stream on which collectives are enqueued. Copy engines move what they can between registered windows, so
// that the multiprocessors are free to compute, unless thread blocks are asked for.
ncclConfig_t Config(const std::string& name, const parallel::GroupOptions& options, int ctas) {
  ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
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
      config.maxCTAs = ctas;  // for what copy engines cannot move
    }
  }
  if (!options.net_name.empty()) {
    config.netName = options.net_name.c_str();
  }
  return config;
}

void Check(ncclResult_t result, const std::string& where) {
  if (result != ncclSuccess) {
    throw CommError(where + ": NCCL: " + NcclErrorText(result, /*comm=*/nullptr));
  }
}

CommError Aborted(const std::string& where) { return CommError(where + ": aborted"); }

// Runs `task`, in which NCCL waits for the other ranks, on a thread of its own. If they do not come within
// `patience`, throws CommError, and leaves the thread running until the process ends.
ncclResult_t Await(std::packaged_task<ncclResult_t()> task, int device, const std::string& where,
                   absl::Duration patience) {
  std::future<ncclResult_t> result = task.get_future();
  std::thread([device, task = std::move(task)]() mutable {
    cudaSetDevice(device);
    task();
  }).detach();
  if (result.wait_for(absl::ToChronoNanoseconds(patience)) != std::future_status::ready) {
    throw CommError(where + ": not all ranks took part within " + absl::FormatDuration(patience));
  }
  return result.get();
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
      timeout_(timeout),
      handle_(std::make_shared<NcclHandle>(name_, options, device)) {
  const std::string where = Where("creation");
  std::packaged_task<ncclResult_t()> create([handle = handle_, begin, ctas] {
    ncclConfig_t config = Config(handle->name(), handle->options(), ctas);
    ncclComm_t comm = nullptr;
    const ncclResult_t result = begin(&comm, &config);
    if (result == ncclSuccess) {
      handle->Set(comm);
    }
    return result;
  });
  try {
    Check(Await(std::move(create), device_, where, timeout_), where);
  } catch (const CommError&) {
    Abort();  // also aborts a communicator that is created later
    throw;
  }
}

NcclCommunicator::~NcclCommunicator() {
  const device::CudaGuard guard(device_);
  try {
    Farewell();
  } catch (const std::exception&) {  // also if no thread can start
    Abort();
  }
  for (cudaEvent_t event : events_) {
    cudaEventDestroy(event);
  }
}

NcclCommunicator::Begin NcclCommunicator::Split() const {
  return [handle = handle_, rank = rank_, where = Where("clone")](ncclComm_t* clone, ncclConfig_t* config) {
    const NcclCall call(handle);
    if (call.comm() == nullptr) {
      throw Aborted(where);
    }
    return ncclCommSplit(call.comm(), 0, rank, clone, config);
  };
}

std::string NcclCommunicator::Where(const std::string& operation) const {
  return "group " + name_ + " rank " + std::to_string(job_rank_) + " " + operation;
}

ncclResult_t NcclCommunicator::Wait(const std::string& where, absl::Duration patience,
                                    std::function<ncclResult_t(ncclComm_t)> call) const {
  NcclCall inside(handle_);
  if (inside.comm() == nullptr) {
    throw Aborted(where);
  }
  return Await(
      std::packaged_task<ncclResult_t()>([inside = std::move(inside), call = std::move(call)]() mutable {
        const NcclCall held = std::move(inside);  // ends before its result can be read
        return call(held.comm());
      }),
      device_, where, patience);
}

void NcclCommunicator::Start(const Collective& call, Launch launch) {
  const std::string where = Where(call.operation);
  const device::CudaGuard guard(device_);
  const cudaStream_t stream = device::CurrentCudaStream(device_);
  const uint64_t sequence = num_collectives_;
  if (call.IsEmpty()) {
    ++num_collectives_;
    return;
  }
  if (NcclCall(handle_).comm() == nullptr) {
    throw Aborted(where);
  }
  Pending pending{.operation = call.operation, .sequence = sequence};
  {
    const absl::MutexLock lock(&mu_);
    pending.begin = Mark(stream);
    starting_ = Starting{.call = pending, .since = platform::SteadyClock().Now()};
  }
  absl::Cleanup started = [this] {
    const absl::MutexLock lock(&mu_);
    starting_.reset();
  };
  ncclResult_t result = ncclSuccess;
  if (!has_started_) {
    result = Wait(where, timeout_, [call, size = size_, stream, launch](ncclComm_t comm) {
      return launch(call, size, comm, stream);
    });
  } else if (const NcclCall inside(handle_); inside.comm() != nullptr) {
    result = launch(call, size_, inside.comm(), stream);
  } else {
    throw Aborted(where);
  }
  Check(result, where);
  has_started_ = true;
  std::move(started).Invoke();
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
  const absl::Time now = platform::SteadyClock().Now();
  if (pending_.empty()) {
    return starting_ && now - starting_->since > timeout_;
  }
  if (!oldest_reached_ && cudaEventQuery(pending_.front().begin) == cudaSuccess) {
    oldest_reached_ = now;
  }
  return oldest_reached_ && now - *oldest_reached_ > timeout_;
}

void NcclCommunicator::Farewell() {
  const std::string where = Where("end");
  if (handle_->is_called()) {
    throw CommError(where + ": a call into NCCL has not returned");
  }
  for (const Window& window : windows_) {
    Check(Wait(where, kFarewell,
               [window](ncclComm_t comm) { return ncclCommWindowDeregister(comm, window.window); }),
          where);
  }
  Check(Wait(where, kFarewell, [](ncclComm_t comm) { return ncclCommFinalize(comm); }), where);
  if (ncclComm_t const comm = handle_->Take(); comm != nullptr) {
    ncclCommDestroy(comm);
  }
}

void NcclCommunicator::AllGather(Memory input, Memory output) {
  const Collective call = CheckAllGather(name_, size_, input, output);
  Start(call, [](const Collective& all, int, ncclComm_t comm, cudaStream_t stream) {
    return ncclAllGather(all.input, all.output, static_cast<size_t>(all.slice), ncclInt8, comm, stream);
  });
}

void NcclCommunicator::AllToAll(Memory input, Memory output) {
  const Collective call = CheckAllToAll(name_, size_, input, output);
  Start(call, [](const Collective& all, int, ncclComm_t comm, cudaStream_t stream) {
    return ncclAlltoAll(all.input, all.output, static_cast<size_t>(all.slice), ncclInt8, comm, stream);
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

// Uses sends and receives, because copy engines move only slices of one size.
void NcclCommunicator::Exchange(const Collective& call) {
  Start(call, [](const Collective& all, int size, ncclComm_t comm, cudaStream_t stream) {
    ncclResult_t result = ncclGroupStart();
    for (int peer = 0; peer < size && result == ncclSuccess; ++peer) {
      if (all.BytesTo(peer) > 0) {
        result = ncclSend(all.InputFor(peer), static_cast<size_t>(all.BytesTo(peer)), ncclInt8, peer, comm,
                          stream);
      }
      if (result == ncclSuccess && all.BytesFrom(peer) > 0) {
        result = ncclRecv(all.OutputOf(peer), static_cast<size_t>(all.BytesFrom(peer)), ncclInt8, peer, comm,
                          stream);
      }
    }
    const ncclResult_t end = ncclGroupEnd();
    return result == ncclSuccess ? end : result;
  });
}

absl::Status NcclCommunicator::RegisterWindow(std::shared_ptr<const device::Region> region) {
  const std::string where = Where("registration of a window");
  // With other memory NCCL fails, and leaves the communicator useless.
  if (dynamic_cast<const NcclRegion*>(region.get()) == nullptr) {
    return absl::FailedPreconditionError(where + ": NCCL did not allocate this memory");
  }
  const auto made = std::make_shared<ncclWindow_t>(nullptr);
  const ncclResult_t result = Wait(where, timeout_, [region, made](ncclComm_t comm) {
    return ncclCommWindowRegister(comm, region->begin(), static_cast<size_t>(region->bytes()), made.get(),
                                  NCCL_WIN_COLL_SYMMETRIC);
  });
  if (result == ncclInvalidArgument || result == ncclInvalidUsage) {
    return absl::FailedPreconditionError(where + ": NCCL: " + NcclErrorText(result, /*comm=*/nullptr));
  }
  Check(result, where);
  ncclWindow_t const window = *made;
  if (window == nullptr) {
    return absl::FailedPreconditionError(where +
                                         ": NCCL makes none between these GPUs, or of memory of this kind");
  }
  windows_.push_back({window, std::move(region)});
  return absl::OkStatus();
}

void NcclCommunicator::Abort() { handle_->Abort(); }

void NcclCommunicator::CheckPending() {
  const NcclCall call(handle_);
  if (call.comm() == nullptr) {
    return;
  }
  if (!mu_.TryLock()) {
    return;  // an event is being recorded: the next check sees what follows
  }
  const TakenLock lock(&mu_);
  Prune();
  ncclResult_t state = ncclSuccess;
  ncclCommGetAsyncError(call.comm(), &state);
  const Pending* const oldest = !pending_.empty() ? &pending_.front()
                                : starting_       ? &starting_->call
                                                  : nullptr;
  const std::string where = Where(oldest == nullptr ? "idle" : oldest->operation);
  Check(state, where);
  if (oldest != nullptr && IsLate()) {
    throw CommError(where + " number " + std::to_string(oldest->sequence) +
                    ": not all ranks took part within " + absl::FormatDuration(timeout_));
  }
}

}  // namespace tandem::comm
