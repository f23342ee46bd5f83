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

// The collectives of one NCCL group, from its creation until it is aborted or ended. nccl_factory.h, which
// makes these, has the contract for users.
class NcclCommunicator final : public Communicator {
 public:
  // Creates an NCCL communicator with that configuration. It owns what it uses. Throws CommError.
  using Begin = std::function<ncclResult_t(ncclComm_t*, ncclConfig_t*)>;

  // ctas: the most thread blocks of a collective; 0: as many as NCCL takes. Calls `begin`. job_rank: this
  // rank's number in error messages. device: an index among the GPUs that this process sees. Throws
  // CommError, after `timeout` at the latest.
  NcclCommunicator(std::string name, int rank, int size, int job_rank, int device, absl::Duration timeout,
                   const parallel::GroupOptions& options, int ctas, const Begin& begin);
  ~NcclCommunicator() override;  // ends the group together with the others, or aborts it

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

  // Makes a clone, over the same ranks; for its constructor.
  Begin Split() const;

 private:
  // A collective that has been started, and the points in the stream before and behind it.
  struct Pending {
    const char* operation = "";
    uint64_t sequence = 0;
    cudaEvent_t begin = nullptr;
    cudaEvent_t end = nullptr;
  };
  // A collective whose call into NCCL has not returned, and since when. The first call connects the ranks.
  struct Starting {
    Pending call;
    absl::Time since;
  };
  struct Window {
    ncclWindow_t window = nullptr;
    std::shared_ptr<const device::Region> region;  // is there as long as the window
  };

  std::string Where(const std::string& operation) const;

  // Returns the result of `call`, in which NCCL waits for the other ranks. Throws CommError if they do not
  // come within `patience`; then a thread that runs it is left behind, so it owns what it uses.
  ncclResult_t Wait(const std::string& where, absl::Duration patience,
                    std::function<ncclResult_t(ncclComm_t)> call) const;

  // Calls `launch`, which enqueues a collective of NCCL on the current stream, and marks its begin and end.
  template <typename Launch>
  void Start(const Collective& call, const Launch& launch) ABSL_LOCKS_EXCLUDED(mu_);

  // Sends to each rank and receives from each rank what the call says.
  void Exchange(const Collective& call) ABSL_LOCKS_EXCLUDED(mu_);

  // Records an event on `stream`, after all work that is enqueued there.
  cudaEvent_t Mark(cudaStream_t stream) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

  // Forgets what has ended; the stream reports errors of the GPU.
  void Prune() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

  // Whether the oldest pending collective has passed its deadline. Call after Prune. The deadline counts from
  // when the GPU reaches the collective, because the host enqueues up to a whole step ahead.
  bool IsLate() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

  void Farewell();

  const std::string name_;
  const int rank_;
  const int size_;
  const int job_rank_;
  const int device_;
  const absl::Duration timeout_;
  const std::shared_ptr<NcclHandle> handle_;
  std::vector<Window> windows_;
  // A GPU that waits for a peer may accept no more work, and the record of an event, which holds this mutex,
  // then hangs. So the watchdog must not wait for it.
  absl::Mutex mu_;
  std::optional<Starting> starting_ ABSL_GUARDED_BY(mu_);
  std::deque<Pending> pending_ ABSL_GUARDED_BY(mu_);
  std::vector<cudaEvent_t> events_ ABSL_GUARDED_BY(mu_);       // all that were made
  std::vector<cudaEvent_t> free_events_ ABSL_GUARDED_BY(mu_);  // those of collectives that have ended
  // When the GPU reached the oldest pending collective.
  std::optional<absl::Time> oldest_reached_ ABSL_GUARDED_BY(mu_);
  std::atomic<uint64_t> num_collectives_{0};
  std::atomic<uint64_t> num_ended_{0};
};

}  // namespace tandem::comm
