#pragma once

#include <map>
#include <optional>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "platform/clock.h"
#include "platform/steady_condition.h"
#include "worker/report_buffer.h"
#include "worker/state.h"

namespace tandem::worker {

// The reports of all attempts on their way from the trainers to the controller, past the state machine.
// Thread-safe.
class ReportQueue {
 public:
  ReportQueue(const platform::Clock& clock, ReportLimits limits) : clock_(clock), limits_(limits) {}

  // From the trainers; never blocks on the controller.
  void Add(const AttemptKey& attempt, v1::StepReport report) ABSL_LOCKS_EXCLUDED(mu_);
  void AddTable(const AttemptKey& attempt, v1::ParameterTable table) ABSL_LOCKS_EXCLUDED(mu_);

  // No more reports will come: send what is there without waiting for more.
  void Ended(const AttemptKey& attempt) ABSL_LOCKS_EXCLUDED(mu_);

  // The controller has forgotten the attempt; its buffer goes when acknowledged, or a minute later.
  void Forget(const AttemptKey& attempt) ABSL_LOCKS_EXCLUDED(mu_);

  // For the one thread that sends. Blocks until a batch is due, nullopt once Wake was called.
  std::optional<v1::ReportBatch> Next() ABSL_LOCKS_EXCLUDED(mu_);
  void Wake() ABSL_LOCKS_EXCLUDED(mu_);
  // A new stream: everything unacknowledged again. Undoes Wake.
  void Restart() ABSL_LOCKS_EXCLUDED(mu_);
  void Acked(const v1::ReportAck& ack) ABSL_LOCKS_EXCLUDED(mu_);

  // Waits until everything is acknowledged; false: not within `limit`.
  bool WaitUntilEmpty(absl::Duration limit) ABSL_LOCKS_EXCLUDED(mu_);

 private:
  struct Attempt {
    ReportBuffer buffer;
    bool flush = false;
    absl::Time drop_at = absl::InfiniteFuture();
  };

  Attempt& Find(const AttemptKey& attempt) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void DropForgotten(absl::Time now) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  bool IsEmpty() const ABSL_SHARED_LOCKS_REQUIRED(mu_);

  const platform::Clock& clock_;
  const ReportLimits limits_;
  mutable absl::Mutex mu_;
  platform::SteadyCondition changed_;
  std::map<AttemptKey, Attempt> attempts_ ABSL_GUARDED_BY(mu_);
  bool awake_ ABSL_GUARDED_BY(mu_) = false;
};

}  // namespace tandem::worker
