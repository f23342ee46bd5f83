// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "controller/rpc/call_refuser.h"
#include "controller/rpc/callers.h"
#include "controller/rpc/message_limit.h"
#include "tls/identity.h"
#include "tls/tls_stream.h"

namespace tandem::controller {

// One connection of a ConnectionGuard: a client's socket, and the one whose other end gRPC has. It moves the
// bytes; what becomes of it, and when, the guard says. Not thread-safe.
class GuardedConnection {
 public:
  enum class Progress { kSome, kNone, kOver };
  enum class Greeting { kKnown, kRefused, kWait, kOver };

  // Owns `client`, a connected socket that does not block. `callers` outlives it; `tls` too, null: none is
  // spoken.
  GuardedConnection(int client, const tls::ServerTls* tls, Callers& callers, MessageLimit limit);
  ~GuardedConnection();
  GuardedConnection(const GuardedConnection&) = delete;
  GuardedConnection& operator=(const GuardedConnection&) = delete;

  // Events of the client's socket are numbered 2 `id`, those of the server's 2 `id` + 1, by their edges: Pump
  // is called until it makes no progress. False where the kernel takes no more.
  bool Register(int epoll, uint64_t id) const;
  bool RegisterServer(int epoll, uint64_t id) const;

  // Whether it has a server's end.
  bool opened() const { return server_.fd >= 0; }
  bool greeting() const { return !opened() && !refuser_.has_value(); }
  // The client's address: "10.0.0.3:40112", or "unix".
  const std::string& address() const { return address_; }
  // "user/alice"; empty: it has not been opened.
  const std::string& who() const { return who_; }

  // The TLS handshake, as far as it goes now. kKnown: `caller` has the client, and Open may follow;
  // kRefused: `why` has why not, for Refuse.
  Greeting Greet(Caller& caller, absl::Status& why);

  // In place of Open: every call of the client ends with `why`.
  void Refuse(const absl::Status& why);

  // The descriptor for gRPC, whose calls will be those of `caller`; -1 where there is none to be had.
  int Open(const Caller& caller);

  // Whether who was let in would still be: its certificate may have been revoked.
  bool IsStillWelcome() const;

  // The client has until `time` to take the rest.
  void CloseAt(absl::Time time) { close_at_ = std::min(close_at_, time); }
  // It is not to be closed by the clock.
  void Keep() { close_at_ = absl::InfiniteFuture(); }
  absl::Time close_at() const { return close_at_; }

  // Moves what can be moved at once by way of `buffer`, and adds to `refused` the messages that were refused.
  Progress Pump(std::string& buffer, absl::Time now, int64_t& refused);

 private:
  struct Side {
    int fd = -1;
    bool ended = false;   // nothing more comes from it
    std::string pending;  // what is to be written to it
  };

  Progress PumpBoth(std::string& buffer, int64_t& refused);
  Progress PumpRefuser(std::string& buffer);
  std::string_view Read(Side& side, std::string& buffer);
  bool Write(Side& side);

  Callers& callers_;
  const std::string address_;
  std::string name_;  // in callers_
  std::string who_;
  Side client_;
  std::optional<tls::TlsStream> tls_;  // of the client's side
  bool looked_ = false;                // at the first byte
  Side server_;
  std::optional<CallRefuser> refuser_;  // in place of a server
  bool refused_enough_ = false;
  MessageLimit limit_;
  absl::Time close_at_ = absl::InfiniteFuture();
};

}  // namespace tandem::controller
