// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <grpcpp/client_context.h>
#include <grpcpp/server_context.h>

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "platform/random.h"
#include "tls/certificate.h"
#include "tls/identity.h"
#include "tls/server_tls.h"

namespace tandem::controller {

class SignIns;

// The identity of a caller, and its address.
struct Caller {
  tls::Identity identity;
  std::string address;                            // "10.0.0.3:40112", or "unix"
  tls::Fingerprints fingerprints = nullptr;       // of its certificate; null if it has none
  absl::Time not_after = absl::InfiniteFuture();  // of its certificate
  bool is_page = false;  // this process makes the call for a browser that shows its page
};

// Identifies the caller of a call: by the certificate of its connection, by its session on the page, or, on
// a connection without TLS (a unix socket, or any if the server has no TLS), as local. Thread-safe, except
// Believe.
class Callers {
 public:
  // `sign_ins` must outlive it.
  Callers(platform::Random& random, const SignIns& sign_ins);

  // Sets the object that checks the certificates of callers. Call it before the first call arrives.
  void Believe(std::shared_ptr<const tls::ServerTls> tls) { tls_ = std::move(tls); }

  // Returns the caller of a call: that of its connection or, for calls of the page, that of its session. The
  // caller of a call of the page without a session is a user whose name no certificate can have, so it owns
  // no job. Unauthenticated, in a sentence for the caller, if its certificate was revoked or its session has
  // ended.
  absl::StatusOr<Caller> Of(const grpc::ServerContextBase& context) const;

  // Marks a call over a channel within this process as the page's. Such a call has no connection by which it
  // could be identified, so it carries a secret that only this process has. `session` is one of SignIns, 32
  // hexadecimal digits, or empty; `browser` is the browser's address, "127.0.0.1:53122".
  void MarkAsPage(const std::string& session, const std::string& browser, grpc::ClientContext& context) const;

 private:
  absl::StatusOr<Caller> OfConnection(const grpc::ServerContextBase& context) const;

  const SignIns& sign_ins_;
  const std::string page_secret_;
  std::shared_ptr<const tls::ServerTls> tls_;  // null: without TLS
};

// Converts grpc::ServerContext::peer(), "ipv4:10.0.0.3:40112", to "10.0.0.3:40112"; to "unix" if the peer has
// no network address.
std::string AddressOfPeer(const std::string& peer);

}  // namespace tandem::controller
