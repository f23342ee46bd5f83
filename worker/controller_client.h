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
  // Of this machine, for its ranks; empty: what `local_address` says of the target before each session. It
  // may take long, as a name service does.
  std::string data_address;
  std::shared_ptr<tls::ClientTls> tls = nullptr;  // null: no TLS, for a controller on this machine
  std::function<absl::StatusOr<std::string>(const std::string& target)> local_address = LocalAddressToward;
  absl::Duration keepalive_time = absl::Seconds(10);
  absl::Duration keepalive_timeout = absl::Seconds(5);
};

// Keeps the streams to the controller. It dials again with jittered back-off: 200 ms at first, at most 2 s,
// or 30 s if the controller refuses this worker's certificate; a session that lasted resets it. It carries
// messages and decides nothing. Thread-safe.
class ControllerClient {
 public:
  using Sink = std::function<void(Input)>;

  // Gives the sink Connected, then FromController in order, then Disconnected; then again.
  ControllerClient(const ControllerAddress& address, platform::Random& random, ReportQueue& reports,
                   Sink sink);
  ~ControllerClient();

  // Sends on the stream that Connected last named; drops the message if that is gone.
  void Send(v1::WorkerMessage message) ABSL_LOCKS_EXCLUDED(mu_);

  // Closes the session's stream; dials again later.
  void Drop() ABSL_LOCKS_EXCLUDED(mu_);

  // Waits, at most for `limit`, until the controller has read what was sent; then opens no more streams.
  void Stop(absl::Duration limit) ABSL_LOCKS_EXCLUDED(mu_);

  // The connection for large data and reports: on the session's connection they would delay heartbeats if the
  // link is slow, and the controller would take this worker for lost. It is replaced after it broke, so ask
  // for it at each use.
  std::shared_ptr<grpc::Channel> bulk_channel() const ABSL_LOCKS_EXCLUDED(mu_);

 private:
  class Session;
  class ReportStream;
  // How long no controller has answered, and when the log says so next.
  struct Away {
    absl::Time since;
    absl::Duration log_after;
  };

  // Null if no session was opened (the log may say why), or when stopping.
  std::shared_ptr<Session> OpenSession(Away& away) ABSL_LOCKS_EXCLUDED(mu_);
  // Gives the sink what arrives until the session ends.
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
  platform::SteadyCondition changed_;  // of stopping_ and connected_
  bool stopping_ ABSL_GUARDED_BY(mu_) = false;
  std::shared_ptr<Session> session_ ABSL_GUARDED_BY(mu_);  // the one that dials or is open
  bool connected_ ABSL_GUARDED_BY(mu_) = false;            // it is open
  std::shared_ptr<grpc::Channel> bulk_channel_ ABSL_GUARDED_BY(mu_);
  std::shared_ptr<ReportStream> report_stream_ ABSL_GUARDED_BY(mu_);  // the open one
  std::thread sessions_thread_;
  std::thread reports_thread_;
};

}  // namespace tandem::worker
