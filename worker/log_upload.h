// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <list>
#include <memory>
#include <string>

#include "absl/base/thread_annotations.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "platform/steady_condition.h"
#include "tandem/v1/workers.pb.h"
#include "worker/state.h"

namespace grpc {
class Channel;
class ClientContext;
}  // namespace grpc

namespace tandem::worker {

// Sends logs of ranks to the controller, each on a stream and a thread of its own. Thread-safe.
class LogUploads {
 public:
  struct Sources {
    std::function<std::string(const RankKey&)> log_file;
    std::function<bool(const AttemptKey&)> is_live;  // more may be written
    std::string kept;                                // which logs are kept, for messages
  };

  // `channel` gives the connection for an upload that begins.
  LogUploads(std::function<std::shared_ptr<grpc::Channel>()> channel, Sources sources);

  // Cancels uploads in progress.
  ~LogUploads() ABSL_LOCKS_EXCLUDED(mu_);

  // Sends the tail that was asked for, and with `follow` what is written later, until the attempt ends or the
  // controller ends the stream (an empty chunk per second notices that while nothing is written). For a log
  // that cannot be read it sends one chunk with the error.
  void Start(const v1::UploadRequest& request) ABSL_LOCKS_EXCLUDED(mu_);

 private:
  struct Upload;

  void Run(Upload& upload, const v1::UploadRequest& request, bool too_many);
  // Returns false if the upload is being cancelled.
  bool Pause() ABSL_LOCKS_EXCLUDED(mu_);

  const std::function<std::shared_ptr<grpc::Channel>()> channel_;
  const Sources sources_;
  absl::Mutex mu_;
  platform::SteadyCondition changed_;  // of stopping_
  bool stopping_ ABSL_GUARDED_BY(mu_) = false;
  std::list<std::unique_ptr<Upload>> uploads_ ABSL_GUARDED_BY(mu_);
};

}  // namespace tandem::worker
