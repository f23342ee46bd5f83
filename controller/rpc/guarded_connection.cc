// SPDX-License-Identifier: Apache-2.0
#include "controller/rpc/guarded_connection.h"

#include <netdb.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <utility>

#include "absl/strings/str_cat.h"
#include "tls/server_tls.h"

namespace tandem::controller {
namespace {

constexpr size_t kMostPending = 65536;  // of what the client has not taken yet, while more is read from it
constexpr char kTlsHandshake = 0x16;    // the first byte of every TLS connection
constexpr char kNotTls[] =
    "this address of the controller speaks TLS, and the client does not; give --tls-ca, --tls-cert and "
    "--tls-key";

// "10.0.0.3:40112".
std::string AddressOf(int fd) {
  sockaddr_storage name{};
  socklen_t size = sizeof(name);
  char host[NI_MAXHOST];
  char port[NI_MAXSERV];
  if (getpeername(fd, reinterpret_cast<sockaddr*>(&name), &size) != 0 || name.ss_family == AF_UNIX ||
      getnameinfo(reinterpret_cast<const sockaddr*>(&name), size, host, sizeof(host), port, sizeof(port),
                  NI_NUMERICHOST | NI_NUMERICSERV) != 0) {
    return "unix";
  }
  return name.ss_family == AF_INET6 ? absl::StrCat("[", host, "]:", port) : absl::StrCat(host, ":", port);
}

bool Register(int epoll, int fd, uint64_t number) {
  epoll_event event{.events = EPOLLIN | EPOLLOUT | EPOLLRDHUP | EPOLLET, .data = {.u64 = number}};
  return epoll_ctl(epoll, EPOLL_CTL_ADD, fd, &event) == 0;
}

}  // namespace

GuardedConnection::GuardedConnection(int client, const tls::ServerTls* tls, Callers& callers,
                                     MessageLimit limit)
    : callers_(callers), address_(AddressOf(client)), client_{.fd = client}, limit_(std::move(limit)) {
  if (tls != nullptr) {
    tls_.emplace(*tls, client);
  }
}

GuardedConnection::~GuardedConnection() {
  callers_.Remove(name_);
  if (tls_.has_value() && opened()) {
    tls_->Close();
  }
  tls_.reset();
  close(client_.fd);
  if (opened()) {
    close(server_.fd);
  }
}

bool GuardedConnection::Register(int epoll, uint64_t id) const {
  return controller::Register(epoll, client_.fd, 2 * id) && (!opened() || RegisterServer(epoll, id));
}

bool GuardedConnection::RegisterServer(int epoll, uint64_t id) const {
  return controller::Register(epoll, server_.fd, 2 * id + 1);
}

GuardedConnection::Greeting GuardedConnection::Greet(Caller& caller, absl::Status& why) {
  if (!looked_) {
    char first = 0;
    const ssize_t got = recv(client_.fd, &first, 1, MSG_PEEK);
    if (got <= 0) {
      return got < 0 && (errno == EAGAIN || errno == EINTR) ? Greeting::kWait : Greeting::kOver;
    }
    looked_ = true;
    if (first != kTlsHandshake) {
      tls_.reset();
      why = absl::UnauthenticatedError(kNotTls);
      return Greeting::kRefused;
    }
  }
  const tls::TlsStream::Step step = tls_->Handshake();
  if (step != tls::TlsStream::Step::kDone) {
    return step == tls::TlsStream::Step::kWait ? Greeting::kWait : Greeting::kOver;
  }
  absl::StatusOr<tls::Peer> peer = tls_->Peer();
  if (!peer.ok()) {
    why = peer.status();
    return Greeting::kRefused;
  }
  caller = {.identity = std::move(peer->identity),
            .address = address_,
            .fingerprint = std::move(peer->fingerprint),
            .not_after = peer->not_after};
  return Greeting::kKnown;
}

void GuardedConnection::Refuse(const absl::Status& why) { refuser_.emplace(why); }

int GuardedConnection::Open(const Caller& caller) {
  std::array<int, 2> ends{};
  if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, ends.data()) != 0) {
    return -1;
  }
  name_ = callers_.Add(ends[0], caller);
  if (name_.empty()) {
    close(ends[0]);
    close(ends[1]);
    return -1;
  }
  who_ = tls::ToText(caller.identity);
  server_.fd = ends[0];
  return ends[1];
}

bool GuardedConnection::IsStillWelcome() const { return !tls_.has_value() || !opened() || tls_->Peer().ok(); }

GuardedConnection::Progress GuardedConnection::Pump(std::string& buffer, absl::Time now, int64_t& refused) {
  if (now >= close_at_) {
    return Progress::kOver;
  }
  return refuser_.has_value() ? PumpRefuser(buffer) : PumpBoth(buffer, refused);
}

GuardedConnection::Progress GuardedConnection::PumpBoth(std::string& buffer, int64_t& refused) {
  const int64_t refused_before = limit_.num_refused();
  MessageLimit::Output out;
  bool good = true;
  bool moved = false;
  if (server_.pending.empty() && client_.pending.size() < kMostPending) {
    const std::string_view bytes = Read(client_, buffer);
    moved = !bytes.empty();
    good = bytes.empty() || limit_.FromClient(bytes, out);
  }
  if (client_.pending.empty()) {
    const std::string_view bytes = Read(server_, buffer);
    moved = moved || !bytes.empty();
    limit_.FromServer(bytes, out);
  }
  refused += limit_.num_refused() - refused_before;
  server_.pending.append(out.to_server);
  client_.pending.append(out.to_client);
  const size_t pending = server_.pending.size() + client_.pending.size();
  good = good && Write(server_) && Write(client_);
  moved = moved || server_.pending.size() + client_.pending.size() < pending;
  // gRPC too takes the end of what it reads for the end of the connection, whatever the client still reads.
  const bool over = (client_.ended && server_.pending.empty()) || (server_.ended && client_.pending.empty());
  return !good || over ? Progress::kOver : moved ? Progress::kSome : Progress::kNone;
}

GuardedConnection::Progress GuardedConnection::PumpRefuser(std::string& buffer) {
  const size_t pending = client_.pending.size();
  const bool reads = !refused_enough_ && pending <= CallRefuser::kMostAnswers;
  const std::string_view bytes = reads ? Read(client_, buffer) : std::string_view();
  if (!bytes.empty() && !refuser_->FromClient(bytes, client_.pending)) {
    refused_enough_ = true;
  }
  const bool good = Write(client_);
  const bool over = (client_.ended || refused_enough_) && client_.pending.empty();
  const bool moved = !bytes.empty() || client_.pending.size() < pending;
  return !good || over ? Progress::kOver : moved ? Progress::kSome : Progress::kNone;
}

std::string_view GuardedConnection::Read(Side& side, std::string& buffer) {
  if (side.ended) {
    return {};
  }
  const ssize_t got = &side == &client_ && tls_.has_value() ? tls_->Read(buffer.data(), buffer.size())
                                                            : recv(side.fd, buffer.data(), buffer.size(), 0);
  if (got > 0) {
    return {buffer.data(), static_cast<size_t>(got)};
  }
  side.ended = got == 0 || (errno != EAGAIN && errno != EINTR);
  return {};
}

bool GuardedConnection::Write(Side& side) {
  size_t written = 0;
  while (written < side.pending.size()) {
    const char* bytes = side.pending.data() + written;
    const size_t size = side.pending.size() - written;
    const ssize_t sent = &side == &client_ && tls_.has_value() ? tls_->Write(bytes, size)
                                                               : send(side.fd, bytes, size, MSG_NOSIGNAL);
    if (sent < 0 && errno != EINTR) {
      side.pending.erase(0, written);
      return errno == EAGAIN;
    }
    written += sent < 0 ? 0 : static_cast<size_t>(sent);
  }
  side.pending.clear();
  return true;
}

}  // namespace tandem::controller
