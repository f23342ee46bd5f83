// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <grpcpp/grpcpp.h>
#include <grpcpp/security/server_credentials.h>

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "controller/rpc/call_interceptor.h"
#include "controller/rpc/listener.h"
#include "controller/rpc/open_connections.h"
#include "platform/clock.h"
#include "tls/server_tls.h"

namespace tandem::controller {

// Counts refused clients, and logs a line about them every ten seconds. Thread-safe.
class TurnedAway {
 public:
  void Add(const std::string& why) ABSL_LOCKS_EXCLUDED(mu_);
  // Logs the number of refused clients since the last line, and the reason of the last refusal. Call about
  // once a second.
  void LogRefusals(absl::Time now) ABSL_LOCKS_EXCLUDED(mu_);

 private:
  absl::Mutex mu_;
  int64_t clients_ ABSL_GUARDED_BY(mu_) = 0;  // since the last line
  std::string why_ ABSL_GUARDED_BY(mu_);      // the reason of the last refusal
  absl::Time logged_ ABSL_GUARDED_BY(mu_) = absl::InfinitePast();
};

// The roles that may connect.
struct Admits {
  bool users = true;  // and admins
  bool workers = true;
};

// A gRPC server and its addresses. Open binds the addresses, Start starts the server, and from Accept on
// clients are served. Listeners accept connections and hand them to gRPC, which speaks TLS on TCP connections
// if `tls` is set.
class FrontDoor {
 public:
  struct Options {
    std::vector<std::string> listen;
    std::string flag = "--listen";                        // the option of the command line that sets `listen`
    std::shared_ptr<const tls::ServerTls> tls = nullptr;  // must have published its files; null: no TLS
    Admits admits = {};
    // The most bytes that the server's connections and their messages may hold; beyond them gRPC ends some
    // streams. 0: no limit.
    size_t most_bytes = 0;
  };

  // Errors are one line each. `connections`, which counts the connections with TLS, must outlive it.
  static absl::StatusOr<std::unique_ptr<FrontDoor>> Open(const Options& options, OpenConnections& connections,
                                                         std::shared_ptr<TurnedAway> turned_away);

  absl::Status Start(const std::vector<grpc::Service*>& services, const CallRecords& records);
  void Accept();
  void StopAccepting() { listeners_.clear(); }
  // Waits for the calls to end, and cancels them at `deadline`.
  template <typename Time>
  void Shutdown(const Time& deadline) {
    server_->Shutdown(deadline);
  }

  // The addresses, with the real port if 0 was asked for.
  const std::vector<std::string>& addresses() const { return addresses_; }
  // Call after Start.
  grpc::Server& server() { return *server_; }

 private:
  using Acceptor = grpc::experimental::ExternalConnectionAcceptor;

  FrontDoor(const Options& options, OpenConnections& connections, std::shared_ptr<TurnedAway> turned_away)
      : options_(options), connections_(connections), turned_away_(std::move(turned_away)) {}
  bool SpeaksTls(const std::string& address) const;
  void Accepted(int fd, bool speaks_tls, Acceptor& acceptor);

  const Options options_;
  OpenConnections& connections_;
  const std::shared_ptr<TurnedAway> turned_away_;
  std::vector<std::string> addresses_;
  std::vector<std::unique_ptr<Acceptor>> acceptors_;  // one for each listener
  std::unique_ptr<grpc::Server> server_;
  std::vector<std::unique_ptr<Listener>> listeners_;
};

}  // namespace tandem::controller
