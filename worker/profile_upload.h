// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <list>
#include <map>
#include <memory>
#include <set>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "tandem/v1/trainer.pb.h"
#include "tandem/v1/workers.pb.h"
#include "worker/state.h"

namespace grpc {
class Channel;
}  // namespace grpc

namespace tandem::worker {

// Sends the steps that ranks have recorded to the controller, for each request and rank on a stream and a
// thread of its own. All ranks record when the first of them is asked, so steps may come before this worker
// is asked for them: those of the newest profile of each rank are kept until then. Thread-safe.
class ProfileUploads {
 public:
  ProfileUploads();
  ~ProfileUploads() ABSL_LOCKS_EXCLUDED(mu_);

  // Sends steps until the request's last one, or an error if the rank ends before it or a step is too large.
  // An empty chunk at first, and one per second, notice when the reader has gone.
  void Start(const std::shared_ptr<grpc::Channel>& channel, const v1::UploadRequest& request)
      ABSL_LOCKS_EXCLUDED(mu_);

  void Add(const RankKey& rank, v1::ProfiledStep step) ABSL_LOCKS_EXCLUDED(mu_);
  void RankStarted(const RankKey& rank) ABSL_LOCKS_EXCLUDED(mu_);
  void RankGone(const RankKey& rank) ABSL_LOCKS_EXCLUDED(mu_);

  // Cancels uploads in progress; none starts afterwards.
  void Stop() ABSL_LOCKS_EXCLUDED(mu_);

 private:
  class Upload;
  struct Kept {
    uint64_t id = 0;
    std::vector<v1::ProfiledStep> steps;
  };

  // To the uploads of that rank.
  void SetRankRuns(const RankKey& rank, bool runs) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

  absl::Mutex mu_;
  bool stopping_ ABSL_GUARDED_BY(mu_) = false;
  std::set<RankKey> ranks_ ABSL_GUARDED_BY(mu_);  // that run
  std::map<RankKey, Kept> kept_ ABSL_GUARDED_BY(mu_);
  std::list<std::unique_ptr<Upload>> uploads_ ABSL_GUARDED_BY(mu_);
};

}  // namespace tandem::worker
