// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <list>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/synchronization/mutex.h"
#include "platform/steady_condition.h"
#include "tandem/v1/trainer.pb.h"
#include "tandem/v1/workers.pb.h"
#include "worker/state.h"

namespace grpc {
class Channel;
}  // namespace grpc

namespace tandem::worker {

// Sends logs of ranks, and the steps that ranks have recorded (profiles), to the controller. Each upload has
// its own stream and thread. Thread-safe.
class Uploads {
 public:
  // What an upload of a log needs to know.
  struct Logs {
    std::function<std::string(const RankKey&)> file;  // path of a rank's log
    std::function<bool(const AttemptKey&)> is_live;   // whether its ranks may still write
    std::string kept;                                 // says which logs are kept, for messages
  };

  explicit Uploads(Logs logs);
  ~Uploads() ABSL_LOCKS_EXCLUDED(mu_);

  // Sends what the request asks for, over `channel`, until the controller ends the stream. An empty chunk at
  // the start, and one per second without news, finds out whether it has. An error is sent as a last chunk.
  //
  // For a log: sends the requested tail and, if the request has `follow`, what is written later, until the
  // attempt ends. For a profile: sends the rank's steps until the last one. It is an error if the rank ends
  // before that or a step is too large. All ranks record as soon as one of them is asked to, so steps may
  // arrive before the request for them: the steps of each rank's newest profile are kept until then.
  void Start(std::shared_ptr<grpc::Channel> channel, const v1::UploadRequest& request)
      ABSL_LOCKS_EXCLUDED(mu_);

  void Add(const RankKey& rank, v1::ProfiledStep step) ABSL_LOCKS_EXCLUDED(mu_);
  void RankStarted(const RankKey& rank) ABSL_LOCKS_EXCLUDED(mu_);
  void RankGone(const RankKey& rank) ABSL_LOCKS_EXCLUDED(mu_);

  // Cancels uploads in progress. None starts afterwards.
  void Stop() ABSL_LOCKS_EXCLUDED(mu_);

 private:
  struct Upload;
  class Stream;
  struct Kept {
    uint64_t id = 0;
    std::vector<v1::ProfiledStep> steps;
  };

  void Run(Upload& upload, bool too_many) ABSL_LOCKS_EXCLUDED(mu_);
  absl::Status SendLog(const v1::UploadRequest& request, Stream& stream) ABSL_LOCKS_EXCLUDED(mu_);
  absl::Status SendSteps(Upload& upload, Stream& stream) ABSL_LOCKS_EXCLUDED(mu_);

  const Logs logs_;
  absl::Mutex mu_;
  platform::SteadyCondition changed_;  // notified when stopping_, ranks_ or the steps of an upload change
  bool stopping_ ABSL_GUARDED_BY(mu_) = false;
  std::set<RankKey> ranks_ ABSL_GUARDED_BY(mu_);  // ranks that run
  std::map<RankKey, Kept> kept_ ABSL_GUARDED_BY(mu_);
  std::list<std::unique_ptr<Upload>> uploads_ ABSL_GUARDED_BY(mu_);
};

}  // namespace tandem::worker
