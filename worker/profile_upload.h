// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <condition_variable>
#include <list>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <vector>

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
  ~ProfileUploads();

  // Sends steps until that request's last; an error instead where the rank ends before it, or a step is too
  // large to be sent. An empty chunk first, and one a second, find out whether anybody reads still.
  void Start(const std::shared_ptr<grpc::Channel>& channel, const v1::UploadRequest& request);

  void Add(const RankKey& rank, v1::ProfiledStep step);
  void RankStarted(const RankKey& rank);
  void RankGone(const RankKey& rank);

  // Cancels uploads in progress; none starts afterwards.
  void Stop();

 private:
  struct Upload;
  struct Kept {
    uint64_t id = 0;
    std::vector<v1::ProfiledStep> steps;
  };

  void Run(Upload& upload);

  std::mutex mu_;
  std::condition_variable changed_;
  bool stopping_ = false;                       // guarded by mu_
  std::set<RankKey> ranks_;                     // that run; guarded by mu_
  std::map<RankKey, Kept> kept_;                // guarded by mu_
  std::list<std::unique_ptr<Upload>> uploads_;  // guarded by mu_
};

}  // namespace tandem::worker
