// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <grpcpp/grpcpp.h>
#include <grpcpp/security/server_credentials.h>

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "controller/rpc/call_interceptor.h"
#include "controller/rpc/listener.h"
#include "controller/rpc/open_connections.h"
#include "platform/rare_log.h"
#include "tls/server_tls.h"

namespace tandem::controller {

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
  // `turned_away` counts refused clients, and the log has their number and the reason of one.
  static absl::StatusOr<std::unique_ptr<FrontDoor>> Open(const Options& options, OpenConnections& connections,
                                                         std::shared_ptr<platform::RareLog> turned_away);

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

  FrontDoor(const Options& options, OpenConnections& connections,
            std::shared_ptr<platform::RareLog> turned_away)
      : options_(options), connections_(connections), turned_away_(std::move(turned_away)) {}
  bool SpeaksTls(const std::string& address) const;
  void Accepted(int fd, bool speaks_tls, Acceptor& acceptor);

  const Options options_;
  OpenConnections& connections_;
  const std::shared_ptr<platform::RareLog> turned_away_;
  std::vector<std::string> addresses_;
  std::vector<std::unique_ptr<Acceptor>> acceptors_;  // one for each listener
  std::unique_ptr<grpc::Server> server_;
  std::vector<std::unique_ptr<Listener>> listeners_;
};

}  // namespace tandem::controller
