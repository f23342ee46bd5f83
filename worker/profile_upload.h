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

// Sends the steps that ranks have recorded (profiles) to the controller. Each request is for one rank and has
// its own stream and thread. All ranks record as soon as one of them is asked to, so steps may arrive before
// the request for them: the steps of each rank's newest profile are kept until then. Thread-safe.
class ProfileUploads {
 public:
  ProfileUploads();
  ~ProfileUploads() ABSL_LOCKS_EXCLUDED(mu_);

  // Sends steps until the last one of the request, or an error if the rank ends earlier or a step is too
  // large. Sends an empty chunk at the start and one per second, to find out whether the stream has ended.
  void Start(const std::shared_ptr<grpc::Channel>& channel, const v1::UploadRequest& request)
      ABSL_LOCKS_EXCLUDED(mu_);

  void Add(const RankKey& rank, v1::ProfiledStep step) ABSL_LOCKS_EXCLUDED(mu_);
  void RankStarted(const RankKey& rank) ABSL_LOCKS_EXCLUDED(mu_);
  void RankGone(const RankKey& rank) ABSL_LOCKS_EXCLUDED(mu_);

  // Cancels uploads in progress. None starts afterwards.
  void Stop() ABSL_LOCKS_EXCLUDED(mu_);

 private:
  class Upload;
  struct Kept {
    uint64_t id = 0;
    std::vector<v1::ProfiledStep> steps;
  };

  // Tells the uploads of `rank` whether it runs, so that more steps may come.
  void SetRankRuns(const RankKey& rank, bool runs) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

  absl::Mutex mu_;
  bool stopping_ ABSL_GUARDED_BY(mu_) = false;
  std::set<RankKey> ranks_ ABSL_GUARDED_BY(mu_);  // ranks that run
  std::map<RankKey, Kept> kept_ ABSL_GUARDED_BY(mu_);
  std::list<std::unique_ptr<Upload>> uploads_ ABSL_GUARDED_BY(mu_);
};

}  // namespace tandem::worker
