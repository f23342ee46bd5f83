// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <thread>

#include "absl/time/time.h"
#include "platform/random.h"
#include "tandem/v1/workers.pb.h"
#include "worker/data_address.h"
#include "worker/input.h"
#include "worker/report_queue.h"

namespace grpc {
class Channel;
}

namespace tandem::tls {
class ClientTls;
}

namespace tandem::worker {

struct ControllerAddress {
  std::string target;  // "unix:/path" or "host:port"
  // Of this machine, for its ranks; empty: what `local_address` says of the target before each session. It
  // may take long, as a name service does.
  std::string data_address;
  std::shared_ptr<tls::ClientTls> tls = nullptr;  // null: none, of a controller on this machine
  std::function<absl::StatusOr<std::string>(const std::string& target)> local_address = LocalAddressToward;
  absl::Duration keepalive_time = absl::Seconds(10);
  absl::Duration keepalive_timeout = absl::Seconds(5);
};

// The streams to the controller: dials, dials again with jittered back-off (200 ms at first, 2 s at most, 30
// s where the controller does not believe this worker's certificate, and from the first again after a session
// that lasted), carries messages, decides nothing. Thread-safe.
class ControllerClient {
 public:
  using Sink = std::function<void(Input)>;

  // Gives the sink Connected, then FromController in order, then Disconnected; then again.
  ControllerClient(const ControllerAddress& address, platform::Random& random, ReportQueue& reports,
                   Sink sink);
  ~ControllerClient();

  // On the session's stream that Connected last named; dropped where it is gone.
  void Send(v1::WorkerMessage message);

  // Closes the session's stream; dials again later.
  void Drop();

  // The controller reads what was sent, if that takes no longer than `limit`; then no more streams.
  void Stop(absl::Duration limit);

  // For what is large: on the session's connection its bytes would hold heartbeats up where the link is slow,
  // and the controller would take this worker for lost. Reports go there too.
  // Another one after it broke, so ask for it at each use.
  std::shared_ptr<grpc::Channel> bulk_channel() const;

 private:
  class Session;
  class ReportStream;

  void RunSessions();
  void RunReports();
  // false: stopping.
  bool Pause(absl::Duration pause);
  bool stopping() const;

  platform::Random& random_;
  ReportQueue& reports_;
  const Sink sink_;
  const ControllerAddress address_;
  mutable std::mutex mu_;
  std::condition_variable changed_;
  bool stopping_ = false;                        // guarded by mu_
  std::shared_ptr<Session> session_;             // guarded by mu_; the one that dials or is open
  bool connected_ = false;                       // guarded by mu_; it is open
  std::shared_ptr<grpc::Channel> bulk_channel_;  // guarded by mu_
  std::shared_ptr<ReportStream> report_stream_;  // guarded by mu_; the open one
  std::thread sessions_thread_;
  std::thread reports_thread_;
};

}  // namespace tandem::worker
