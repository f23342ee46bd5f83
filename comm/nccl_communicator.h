// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cuda_runtime_api.h>
#include <nccl.h>

#include <atomic>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "comm/communicator.h"
#include "comm/nccl_handle.h"
#include "parallel/group_options.h"

namespace tandem::comm {

struct Collective;

// One rank's member of an NCCL group. nccl_factory.h makes these and has the contract for callers.
class NcclCommunicator final : public Communicator {
 public:
  // Creates an NCCL communicator with the given configuration and stores it at the first argument. Runs on
  // another thread, which may outlive the constructor, so it owns what it uses. May throw CommError.
  using Begin = std::function<ncclResult_t(ncclComm_t*, ncclConfig_t*)>;

  // Calls `begin`. job_rank: this rank's number in error messages. device: an index among the GPUs that this
  // process sees. ctas: the largest number of thread blocks of a collective; 0: NCCL chooses it. Throws
  // CommError, at the latest after `timeout`.
  NcclCommunicator(std::string name, int rank, int size, int job_rank, int device, absl::Duration timeout,
                   const parallel::GroupOptions& options, int ctas, const Begin& begin);
  ~NcclCommunicator() override;  // ends the group together with the other ranks, or aborts it

  const std::string& name() const override { return name_; }
  int rank() const override { return rank_; }
  int size() const override { return size_; }
  int job_rank() const { return job_rank_; }
  int device() const { return device_; }
  absl::Duration timeout() const { return timeout_; }

  void AllGather(Memory input, Memory output) override;
  void AllToAll(Memory input, Memory output) override;
  void AllToAllRows(Memory input, const std::vector<int64_t>& sends, Memory output,
                    const std::vector<int64_t>& receives, int64_t row_bytes) override;
  void Gather(Memory input, Memory output) override;
  void Send(Memory input) override;
  void Receive(Memory output) override;

  absl::Status RegisterWindow(std::shared_ptr<const device::Region> region) override ABSL_LOCKS_EXCLUDED(mu_);
  void Abort() override;
  void CheckPending() override ABSL_LOCKS_EXCLUDED(mu_);

  uint64_t num_collectives() const override { return num_collectives_; }
  uint64_t num_ended() const override { return num_ended_; }

  // Returns what creates a clone over the same ranks: an argument of the clone's constructor.
  Begin Split() const;

 private:
  // A collective, and events in its stream before and after it.
  struct Pending {
    const char* operation = "";
    uint64_t sequence = 0;
    cudaEvent_t begin = nullptr;
    cudaEvent_t end = nullptr;
  };
  // A collective whose call into NCCL has not returned: NCCL connects two ranks when the first bytes go
  // between them, and waits for both.
  struct Starting {
    Pending call;      // without `end`
    absl::Time since;  // by the steady clock
  };
  struct Window {
    ncclWindow_t window = nullptr;
    std::shared_ptr<const device::Region> region;  // is kept as long as the window
  };

  std::string Where(const std::string& operation) const;

  // Runs `call`, in which NCCL waits for the other ranks, on another thread and returns its result. Throws
  // CommError if it takes longer than `patience`; the thread then goes on, so `call` owns what it uses.
  ncclResult_t Wait(const std::string& where, absl::Duration patience,
                    std::function<ncclResult_t(ncclComm_t)> call) const;

  // Enqueues a collective of a group of `size` ranks on `stream`.
  using Launch = ncclResult_t (*)(const Collective& call, int size, ncclComm_t comm, cudaStream_t stream);

  // Calls `launch` with the current stream, and records an event before and after the collective. Throws
  // CommError if the group is aborted, if NCCL fails, or if the group's first collective is not enqueued
  // within the timeout because other ranks do not call it.
  void Start(const Collective& call, Launch launch) ABSL_LOCKS_EXCLUDED(mu_);

  // Starts `call` as sends to, and receives from, each rank.
  void Exchange(const Collective& call) ABSL_LOCKS_EXCLUDED(mu_);

  // Records an event on `stream`, after all work that has been enqueued there.
  cudaEvent_t Mark(cudaStream_t stream) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

  // Removes the collectives that have ended from pending_. Errors of the GPU are the stream's to report.
  void Prune() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

  // Whether the oldest pending collective has passed its deadline. Call after Prune. The time counts from
  // when the GPU reaches the collective, because the host enqueues up to a whole step ahead. If none is
  // pending, it is that of the collective which starts, from its call.
  bool IsLate() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

  // Deregisters the windows and ends the group, together with the other ranks. Throws CommError.
  void Farewell();

  const std::string name_;
  const int rank_;
  const int size_;
  const int job_rank_;
  const int device_;
  const absl::Duration timeout_;
  const std::shared_ptr<NcclHandle> handle_;
  bool has_started_ = false;  // has enqueued a collective
  std::vector<Window> windows_;
  // Held while an event is recorded. That call hangs if the GPU waits for a peer and its queue is full, so
  // the watchdog only tries to lock this mutex.
  absl::Mutex mu_;
  std::optional<Starting> starting_ ABSL_GUARDED_BY(mu_);
  std::deque<Pending> pending_ ABSL_GUARDED_BY(mu_);
  std::vector<cudaEvent_t> events_ ABSL_GUARDED_BY(mu_);       // all that exist
  std::vector<cudaEvent_t> free_events_ ABSL_GUARDED_BY(mu_);  // of collectives that have ended
  // When the GPU reached the oldest pending collective.
  std::optional<absl::Time> oldest_reached_ ABSL_GUARDED_BY(mu_);
  std::atomic<uint64_t> num_collectives_{0};
  std::atomic<uint64_t> num_ended_{0};
};

}  // namespace tandem::comm
