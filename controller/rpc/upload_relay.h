// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <deque>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "controller/metrics/progress_board.h"
#include "platform/clock.h"
#include "platform/random.h"
#include "tandem/v1/jobs.pb.h"
#include "tandem/v1/workers.pb.h"
#include "tls/identity.h"

namespace tandem::controller {

// Passes logs and timelines, which are on the workers, on to readers: a reader asks here, the workers are
// asked to upload, and what they send goes to the reader. A slow reader holds back only its own uploads.
// Thread-safe.
//
// What is held for readers is bounded by Limits, however many of them read nothing: beyond it a chunk is not
// taken, and its worker sends no more. While the limit of all is reached, a reader that has taken nothing for
// ten seconds is ended, so that the others go on.
class UploadRelay {
 public:
  struct Limits {
    size_t bytes_of_reader = size_t{4} << 20;
    size_t bytes = size_t{64} << 20;  // of all readers
    size_t readers_of_caller = 64;
    size_t readers = 512;
  };
  // The longest piece of a log in one chunk; a longer one is refused.
  static constexpr size_t kMostLogBytes = size_t{256} << 10;

  // Sends a request to a worker; false if the worker is not connected.
  using Request = std::function<bool(const std::string& worker, const v1::UploadRequest& request)>;

  // `progress`, `clock` and `random` outlive the relay.
  UploadRelay(Request request, const ProgressBoard& progress, const platform::Clock& clock,
              platform::Random& random, const Limits& limits)
      : limits_(limits), request_(std::move(request)), progress_(progress), clock_(clock), random_(random) {}

  struct Wanted {
    v1::RankSlot slot;
    v1::UploadRequest request;  // without its id
  };

  // What a reader gets: the next chunk, none for now (`more` is called when that changes), or the end.
  struct Next {
    std::optional<v1::UploadChunk> chunk;  // a log's or a profile's, with its rank
    bool end = false;
    absl::Status status;  // of the end
    // Uploads that may go on: the reader calls them, with no lock held.
    std::vector<std::function<void()>> resumes;
  };
  // A reader for `caller` ("user/alice"), by its id. `more` is called from any thread, with no lock held.
  // ResourceExhausted if the caller, or all callers, have too many readers.
  absl::StatusOr<uint64_t> Open(const std::string& caller, const std::vector<Wanted>& wanted,
                                std::function<void()> more) ABSL_LOCKS_EXCLUDED(mu_);
  Next Read(uint64_t reader) ABSL_LOCKS_EXCLUDED(mu_);
  void Close(uint64_t reader) ABSL_LOCKS_EXCLUDED(mu_);

  // A chunk from the worker of `identity`. kFull: it was not taken; deliver it again when `resume` is called
  // (once). kGone: the reader has gone, it was asked of another worker, or another chunk of the upload waits.
  // kTooLong: it has more than kMostLogBytes of a log.
  enum class Taken { kOk, kFull, kGone, kTooLong };
  Taken Deliver(const v1::UploadChunk& chunk, const tls::Identity& identity, std::function<void()> resume)
      ABSL_LOCKS_EXCLUDED(mu_);
  // The upload is over. `cut`: the worker did not say that this was all.
  void Finish(const std::string& upload, bool cut) ABSL_LOCKS_EXCLUDED(mu_);

  // A worker is not connected any more: logs that it has not begun never come, and no timelines.
  void WorkerGone(const std::string& worker) ABSL_LOCKS_EXCLUDED(mu_);
  // Gives up on workers that do not answer, on timelines of jobs that are stalled, and on readers that hold
  // back the others. Call about once a second.
  void Tick() ABSL_LOCKS_EXCLUDED(mu_);

  // The bytes that are held for all readers now.
  size_t bytes() const ABSL_LOCKS_EXCLUDED(mu_);

 private:
  struct Upload {
    uint64_t reader = 0;
    v1::RankSlot slot;
    absl::Time asked;
    bool begun = false;
    bool waits = false;  // a chunk of it was not taken
    bool is_profile = false;
    std::string job_id;
    int missing = 0;  // timelines of a profile that have not come
  };
  struct Reader {
    std::string caller;
    std::deque<v1::UploadChunk> chunks;
    size_t bytes = 0;            // of them, in memory
    absl::Time took;             // when it last took one, or was opened
    std::set<std::string> open;  // uploads
    std::function<void()> more;
    std::vector<std::pair<std::string, std::function<void()>>> resumes;  // by upload
    absl::Status status;                                                 // why it was ended
  };

  bool HasRoom(const Reader& reader) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) {
    return reader.bytes < limits_.bytes_of_reader && bytes_ < limits_.bytes;
  }
  void Add(v1::UploadChunk chunk, Reader& reader) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // The uploads that may go on; to be called after the lock is released.
  std::vector<std::function<void()>> TakeResumes(Reader& reader) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // The same, of every reader that has room.
  std::vector<std::function<void()>> TakeResumes() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Ends readers that hold back the others; appends what is to be called after the lock is released.
  void EndIdle(std::vector<std::function<void()>>& calls) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Ends an upload with an error; returns what to call after the lock is released.
  std::function<void()> Fail(const std::string& upload, const std::string& error)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

  const Limits limits_;
  const Request request_;
  const ProgressBoard& progress_;
  const platform::Clock& clock_;
  platform::Random& random_;

  mutable absl::Mutex mu_;
  size_t bytes_ ABSL_GUARDED_BY(mu_) = 0;  // of all readers' chunks
  uint64_t last_reader_ ABSL_GUARDED_BY(mu_) = 0;
  std::map<uint64_t, Reader> readers_ ABSL_GUARDED_BY(mu_);
  std::map<std::string, Upload> uploads_ ABSL_GUARDED_BY(mu_);
};

}  // namespace tandem::controller
