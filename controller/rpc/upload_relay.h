// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <deque>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "controller/metrics/progress_board.h"
#include "controller/rpc/sessions.h"
#include "platform/clock.h"
#include "platform/random.h"
#include "tandem/v1/jobs.pb.h"
#include "tandem/v1/workers.pb.h"
#include "tls/identity.h"

namespace tandem::controller {

// Logs lie on the workers, and timelines are recorded there. A reader asks here; the workers are asked to
// upload; what they send is handed on. A reader that is slow holds back its uploads alone. Thread-safe.
class UploadRelay {
 public:
  UploadRelay(Sessions& sessions, const ProgressBoard& progress, const platform::Clock& clock,
              platform::Random& random)
      : sessions_(sessions), progress_(progress), clock_(clock), random_(random) {}

  struct Wanted {
    v1::RankSlot slot;
    v1::UploadRequest request;  // without its id
  };

  // What a reader gets: the next chunk, none for now (`more` is called when that changes), or the end.
  struct Next {
    std::optional<v1::UploadChunk> chunk;  // a log's or a profile's, with its rank
    bool end = false;
  };
  // Ids are those of readers. `more` is called from any thread, with no lock held.
  uint64_t Open(const std::vector<Wanted>& wanted, std::function<void()> more) ABSL_LOCKS_EXCLUDED(mu_);
  Next Read(uint64_t reader) ABSL_LOCKS_EXCLUDED(mu_);
  void Close(uint64_t reader) ABSL_LOCKS_EXCLUDED(mu_);

  // A chunk from the worker of `identity`. kFull: send no more until `resume` is called (once). kGone: nobody
  // reads it, or it was asked of another worker.
  enum class Taken { kOk, kFull, kGone };
  Taken Deliver(const v1::UploadChunk& chunk, const tls::Identity& identity, std::function<void()> resume)
      ABSL_LOCKS_EXCLUDED(mu_);
  // The upload is over. `cut`: the worker did not say that this was all.
  void Finish(const std::string& upload, bool cut) ABSL_LOCKS_EXCLUDED(mu_);

  // A worker is not connected any more: logs that it has not begun never come, and no timelines.
  void WorkerGone(const std::string& worker) ABSL_LOCKS_EXCLUDED(mu_);
  // Gives up on workers that do not answer, and on timelines of jobs that are stalled. Call about once a
  // second.
  void Tick() ABSL_LOCKS_EXCLUDED(mu_);

 private:
  struct Upload {
    uint64_t reader = 0;
    v1::RankSlot slot;
    absl::Time asked;
    bool begun = false;
    bool is_profile = false;
    std::string job_id;
    int missing = 0;  // timelines of a profile that have not come
  };
  struct Reader {
    std::deque<v1::UploadChunk> chunks;
    std::set<std::string> open;  // uploads
    std::function<void()> more;
    std::vector<std::function<void()>> resumes;
  };

  // Ends an upload with an error; returns what to call after the lock is released.
  std::function<void()> Fail(const std::string& upload, const std::string& error)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

  Sessions& sessions_;
  const ProgressBoard& progress_;
  const platform::Clock& clock_;
  platform::Random& random_;

  absl::Mutex mu_;
  uint64_t last_reader_ ABSL_GUARDED_BY(mu_) = 0;
  std::map<uint64_t, Reader> readers_ ABSL_GUARDED_BY(mu_);
  std::map<std::string, Upload> uploads_ ABSL_GUARDED_BY(mu_);
};

}  // namespace tandem::controller
