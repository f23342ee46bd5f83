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

// Relays logs and timelines from workers to readers: when a reader is opened, the workers are asked to
// upload, and what they send goes to the reader. A slow reader holds back only its own uploads. Thread-safe.
//
// Limits bounds what is held for readers, however many of them read nothing: beyond a limit no chunk is
// accepted, and its worker waits. While the limit of all readers is reached, a reader that has read nothing
// for ten seconds is ended, so that the others go on.
class UploadRelay {
 public:
  struct Limits {
    size_t bytes_of_reader = size_t{4} << 20;
    size_t bytes = size_t{64} << 20;  // of all readers
    size_t readers_of_caller = 64;
    size_t readers = 512;
  };
  // The most bytes of a log in one chunk; a longer chunk is refused.
  static constexpr size_t kMostLogBytes = size_t{256} << 10;

  // Sends a request to a worker; returns false if the worker is not connected.
  using Request = std::function<bool(const std::string& worker, const v1::UploadRequest& request)>;

  // `progress`, `clock` and `random` must outlive the relay.
  UploadRelay(Request request, const ProgressBoard& progress, const platform::Clock& clock,
              platform::Random& random, const Limits& limits)
      : limits_(limits), request_(std::move(request)), progress_(progress), clock_(clock), random_(random) {}

  struct Wanted {
    v1::RankSlot slot;
    v1::UploadRequest request;  // without its id
  };

  // What a reader gets: the next chunk, the end, or neither for now (`more` is called when that changes).
  struct Next {
    std::optional<v1::UploadChunk> chunk;  // a log's or a profile's, with its rank
    bool end = false;
    absl::Status status;  // with which it ended
    // Callbacks of uploads that may go on. The reader must call them, with no lock held.
    std::vector<std::function<void()>> resumes;
  };
  // Opens a reader for `caller` ("user/alice"), and returns its id. `more` is called from any thread, with no
  // lock held. ResourceExhausted if the caller, or all callers, have too many readers.
  absl::StatusOr<uint64_t> Open(const std::string& caller, const std::vector<Wanted>& wanted,
                                std::function<void()> more) ABSL_LOCKS_EXCLUDED(mu_);
  Next Read(uint64_t reader) ABSL_LOCKS_EXCLUDED(mu_);
  void Close(uint64_t reader) ABSL_LOCKS_EXCLUDED(mu_);

  // Delivers a chunk from the worker of `identity`. kFull: it was not accepted; deliver it again when
  // `resume` is called (once). kGone: the reader has gone, another worker was asked for the upload, or
  // another chunk of the upload waits. kTooLong: it has more than kMostLogBytes of a log.
  enum class Taken { kOk, kFull, kGone, kTooLong };
  Taken Deliver(const v1::UploadChunk& chunk, const tls::Identity& identity, std::function<void()> resume)
      ABSL_LOCKS_EXCLUDED(mu_);
  // Ends an upload. `cut`: the stream broke before the worker had ended it.
  void Finish(const std::string& upload, bool cut) ABSL_LOCKS_EXCLUDED(mu_);

  // Call when a worker has disconnected. Ends with an error the logs that it has not begun to upload, and all
  // its unfinished timelines.
  void WorkerGone(const std::string& worker) ABSL_LOCKS_EXCLUDED(mu_);
  // Ends uploads of workers that do not answer, timelines of jobs that are stalled, and readers that hold
  // back the others. Call about once a second.
  void Tick() ABSL_LOCKS_EXCLUDED(mu_);

  // The bytes that are held for all readers.
  size_t bytes() const ABSL_LOCKS_EXCLUDED(mu_);

 private:
  struct Upload {
    uint64_t reader = 0;
    v1::RankSlot slot;
    absl::Time asked;
    bool begun = false;
    bool waits = false;  // a chunk of it was not accepted
    bool is_profile = false;
    std::string job_id;
    int missing = 0;  // timelines of a profile that have not come yet
  };
  struct Reader {
    std::string caller;
    std::deque<v1::UploadChunk> chunks;
    size_t bytes = 0;            // of the chunks, in memory
    absl::Time took;             // when it last read a chunk, or was opened
    std::set<std::string> open;  // uploads
    std::function<void()> more;
    std::vector<std::pair<std::string, std::function<void()>>> resumes;  // by upload
    absl::Status status;                                                 // why it was ended
  };

  bool HasRoom(const Reader& reader) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) {
    return reader.bytes < limits_.bytes_of_reader && bytes_ < limits_.bytes;
  }
  void Add(v1::UploadChunk chunk, Reader& reader) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Returns the callbacks of the uploads that may go on; call them after the lock is released.
  std::vector<std::function<void()>> TakeResumes(Reader& reader) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // As above, for every reader that has room.
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
