// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <grpcpp/client_context.h>
#include <grpcpp/server_context.h>

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "controller/rpc/caller.h"
#include "controller/rpc/sign_ins.h"
#include "platform/random.h"
#include "tls/server_tls.h"

namespace tandem::controller {

// Finds the caller of a call: by the certificate of its connection, by its session of the page, or by the
// socket file that its client could open. Thread-safe, but for Believe.
class Callers {
 public:
  // `sign_ins` outlives it.
  Callers(platform::Random& random, const SignIns& sign_ins);

  // Before the first call: whose certificates are believed.
  void Believe(std::shared_ptr<const tls::ServerTls> tls) { tls_ = std::move(tls); }

  // Whose call this is: the connection's, or, of the page's calls, the session's. Without a session those are
  // a user's whose name no certificate can have, so no job is its. Unauthenticated, for the caller, where its
  // certificate was revoked, or the session has ended.
  absl::StatusOr<Caller> Of(const grpc::ServerContextBase& context) const;

  // Makes a call over a channel within this process, which has no connection to be known by, the page's: it
  // carries a secret that nobody else has. `session`: of SignIns, 32 hexadecimal digits, or empty;
  // `browser`: its address, "127.0.0.1:53122".
  void MarkAsPage(const std::string& session, const std::string& browser, grpc::ClientContext& context) const;

 private:
  absl::StatusOr<Caller> OfConnection(const grpc::ServerContextBase& context) const;

  const SignIns& sign_ins_;
  const std::string page_secret_;
  std::shared_ptr<const tls::ServerTls> tls_;  // null: no connection has one
};

// "10.0.0.3:40112" of grpc::ServerContext::peer(), "ipv4:10.0.0.3:40112"; "unix" where it has no address of a
// network.
std::string AddressOfPeer(const std::string& peer);

}  // namespace tandem::controller
