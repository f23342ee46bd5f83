// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sys/types.h>

#include <cstddef>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "tls/identity.h"

struct ssl_st;
struct ssl_ctx_st;

namespace tandem::tls {

class ServerTls;

// A client that has shown who it is.
struct Peer {
  Identity identity;
  // Of its certificate (certificate.h).
  std::string fingerprint;
  absl::Time not_after;
};

// The server's end of one TLS connection over a socket that does not block. Every client is let through the
// handshake, so that it gets the reason for a refusal in its own protocol: ask Peer() before anything
// that it says is believed.
class TlsStream {
 public:
  // `fd` stays the caller's; it and `tls` outlive the stream.
  TlsStream(const ServerTls& tls, int fd);
  ~TlsStream();

  enum class Step { kDone, kWait, kFailed };  // kWait: again when the socket can be read or written
  Step Handshake();

  // After kDone: who the client is, by a certificate that one of the server's CAs has signed for clients,
  // valid at the handshake, and not revoked now. Unauthenticated, with a sentence for the client, where it
  // gave none, or another.
  absl::StatusOr<tls::Peer> Peer() const;

  // As recv and send: bytes; 0: the client has ended it; -1 with errno, EAGAIN where nothing can be moved
  // now.
  ssize_t Read(char* buffer, size_t size);
  ssize_t Write(const char* bytes, size_t size);

  // Sends the client the end of the stream.
  void Close();

  // What contexts of servers need for Peer().
  static void AskForCertificates(ssl_ctx_st* context);

 private:
  ssize_t Outcome(int result);

  const ServerTls& tls_;
  std::unique_ptr<ssl_st, void (*)(ssl_st*)> ssl_;
};

}  // namespace tandem::tls
