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

// Sends logs of ranks to the controller. Each upload has its own stream and thread. Thread-safe.
class LogUploads {
 public:
  struct Sources {
    std::function<std::string(const RankKey&)> log_file;
    std::function<bool(const AttemptKey&)> is_live;  // whether its ranks may still write
    std::string kept;                                // says which logs are kept, for messages
  };

  // `channel` returns the connection for a new upload.
  LogUploads(std::function<std::shared_ptr<grpc::Channel>()> channel, Sources sources);

  // Cancels uploads in progress.
  ~LogUploads() ABSL_LOCKS_EXCLUDED(mu_);

  // Sends the requested tail of a log and, if the request has `follow`, what is written later, until the
  // attempt ends or the controller ends the stream. While nothing is written, an empty chunk per second finds
  // out whether the stream has ended. If the log cannot be read, sends one chunk with the error.
  void Start(const v1::UploadRequest& request) ABSL_LOCKS_EXCLUDED(mu_);

 private:
  struct Upload;

  void Run(Upload& upload, const v1::UploadRequest& request, bool too_many);
  // Returns false if the upload is being cancelled.
  bool Pause() ABSL_LOCKS_EXCLUDED(mu_);

  const std::function<std::shared_ptr<grpc::Channel>()> channel_;
  const Sources sources_;
  absl::Mutex mu_;
  platform::SteadyCondition changed_;  // notified when stopping_ changes
  bool stopping_ ABSL_GUARDED_BY(mu_) = false;
  std::list<std::unique_ptr<Upload>> uploads_ ABSL_GUARDED_BY(mu_);
};

}  // namespace tandem::worker
