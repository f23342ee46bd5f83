// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <thread>

#include "absl/base/thread_annotations.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "platform/random.h"
#include "platform/steady_condition.h"
#include "tandem/v1/workers.pb.h"
#include "worker/data_address.h"
#include "worker/input.h"
#include "worker/report_queue.h"

namespace grpc {
class Channel;
class Status;
}  // namespace grpc

namespace tandem::tls {
class ClientTls;
}

namespace tandem::worker {

struct ControllerAddress {
  std::string target;  // "unix:/path" or "host:port"
  // The address of this machine for its ranks. If empty, `local_address(target)` is called before each
  // session; that may take long, since it may ask a name service.
  std::string data_address;
  std::shared_ptr<tls::ClientTls> tls = nullptr;  // null: no TLS, for a controller on this machine
  std::function<absl::StatusOr<std::string>(const std::string& target)> local_address = LocalAddressToward;
  absl::Duration keepalive_time = absl::Seconds(10);
  absl::Duration keepalive_timeout = absl::Seconds(5);
};

// Keeps the streams to the controller open. Reconnects with a jittered back-off: 200 ms at first, at most 2
// s, or 5 s if the controller refuses this worker's certificate; a session of more than 2 s resets it.
// Carries messages and decides nothing. Thread-safe.
class ControllerClient {
 public:
  using Sink = std::function<void(Input)>;

  // For each session, passes to the sink Connected, then FromController for each message in order, then
  // Disconnected.
  ControllerClient(const ControllerAddress& address, platform::Random& random, ReportQueue& reports,
                   Sink sink);
  ~ControllerClient();

  // Sends on the stream of the last Connected; drops the message if that stream is gone.
  void Send(v1::WorkerMessage message) ABSL_LOCKS_EXCLUDED(mu_);

  // Closes the session's stream; another session is opened later.
  void Drop() ABSL_LOCKS_EXCLUDED(mu_);

  // Waits, at most `limit`, until the controller has read all messages sent, then closes the streams and
  // opens no more.
  void Stop(absl::Duration limit) ABSL_LOCKS_EXCLUDED(mu_);

  // The connection for reports and large data. On the session's connection they would delay heartbeats over a
  // slow link, and the controller would declare this worker lost. The connection is replaced after it breaks,
  // so call this at each use.
  std::shared_ptr<grpc::Channel> bulk_channel() const ABSL_LOCKS_EXCLUDED(mu_);

 private:
  class Session;
  class ReportStream;
  // Since when no controller has answered, and after how long the log says so next.
  struct Away {
    absl::Time since;
    absl::Duration log_after;
  };

  // Returns null if no session could be opened (which may be logged), or when stopping.
  std::shared_ptr<Session> OpenSession(Away& away) ABSL_LOCKS_EXCLUDED(mu_);
  // Passes messages to the sink until the session ends; returns how it ended.
  grpc::Status ReadSession(Session& session) ABSL_LOCKS_EXCLUDED(mu_);
  void RunSessions() ABSL_LOCKS_EXCLUDED(mu_);
  void RunReports() ABSL_LOCKS_EXCLUDED(mu_);
  // Returns false when stopping.
  bool Pause(absl::Duration pause) ABSL_LOCKS_EXCLUDED(mu_);
  bool stopping() const ABSL_LOCKS_EXCLUDED(mu_);

  platform::Random& random_;
  ReportQueue& reports_;
  const Sink sink_;
  const ControllerAddress address_;
  mutable absl::Mutex mu_;
  platform::SteadyCondition changed_;  // notified when stopping_ or connected_ change
  bool stopping_ ABSL_GUARDED_BY(mu_) = false;
  std::shared_ptr<Session> session_ ABSL_GUARDED_BY(mu_);  // being opened, or open
  bool connected_ ABSL_GUARDED_BY(mu_) = false;            // session_ is open
  std::shared_ptr<grpc::Channel> bulk_channel_ ABSL_GUARDED_BY(mu_);
  std::shared_ptr<ReportStream> report_stream_ ABSL_GUARDED_BY(mu_);  // null: none is open
  std::thread sessions_thread_;
  std::thread reports_thread_;
};

}  // namespace tandem::worker
