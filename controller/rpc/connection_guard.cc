// SPDX-License-Identifier: Apache-2.0
#include "controller/rpc/connection_guard.h"

#include <netdb.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <optional>
#include <string_view>
#include <utility>

#include "absl/strings/str_cat.h"
#include "controller/rpc/call_refuser.h"
#include "platform/log.h"
#include "tls/server_tls.h"
#include "tls/tls_stream.h"

namespace tandem::controller {
namespace {

constexpr size_t kReadBytes = 65536;
constexpr absl::Duration kTellEvery = absl::Seconds(10);
// What a client gets to take the last bytes that the server has written before it closed.
constexpr absl::Duration kLinger = absl::Seconds(5);
constexpr absl::Duration kHandshake = absl::Seconds(10);
constexpr char kTlsHandshake = 0x16;  // the first byte of every TLS connection
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

}  // namespace

// A client's socket, and the one whose other end gRPC has.
class ConnectionGuard::Connection {
 public:
  enum class Progress { kSome, kNone, kOver };
  enum class Greeting { kKnown, kRefused, kWait, kOver };

  // `callers` outlives it; `tls` null: none is spoken.
  Connection(int client, const tls::ServerTls* tls, Callers& callers, MessageLimit limit)
      : callers_(callers), address_(AddressOf(client)), client_{.fd = client}, limit_(std::move(limit)) {
    if (tls != nullptr) {
      tls_.emplace(*tls, client);
    }
  }
  ~Connection() {
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

  // Events of the client's socket are numbered 2 `id`, those of the server's 2 `id` + 1. False where the
  // kernel takes no more.
  bool Register(int epoll, uint64_t id) const {
    return Register(epoll, client_.fd, 2 * id) && (!opened() || RegisterServer(epoll, id));
  }
  bool RegisterServer(int epoll, uint64_t id) const { return Register(epoll, server_.fd, 2 * id + 1); }

  // Whether it has a server's end.
  bool opened() const { return server_.fd >= 0; }
  bool greeting() const { return !opened() && !refuser_.has_value(); }
  const std::string& address() const { return address_; }

  // The TLS handshake, as far as it goes now. kKnown: `identity` has the client; kRefused: `why` has why not,
  // and that is what the client is told.
  Greeting Greet(tls::Identity& identity, std::string& why) {
    if (!looked_) {
      char first = 0;
      const ssize_t got = recv(client_.fd, &first, 1, MSG_PEEK);
      if (got <= 0) {
        return got < 0 && (errno == EAGAIN || errno == EINTR) ? Greeting::kWait : Greeting::kOver;
      }
      looked_ = true;
      if (first != kTlsHandshake) {
        tls_.reset();
        why = kNotTls;
        refuser_.emplace(why);
        return Greeting::kRefused;
      }
    }
    const tls::TlsStream::Step step = tls_->Handshake();
    if (step != tls::TlsStream::Step::kDone) {
      return step == tls::TlsStream::Step::kWait ? Greeting::kWait : Greeting::kOver;
    }
    absl::StatusOr<tls::Identity> peer = tls_->Peer();
    if (!peer.ok()) {
      why = std::string(peer.status().message());
      refuser_.emplace(why);
      return Greeting::kRefused;
    }
    identity = *std::move(peer);
    return Greeting::kKnown;
  }

  // The descriptor for gRPC, whose calls will be those of `identity`; -1 where there is none to be had.
  int Open(const tls::Identity& identity) {
    std::array<int, 2> ends{};
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, ends.data()) != 0) {
      return -1;
    }
    name_ = callers_.Add(ends[0], {.identity = identity, .address = address_});
    if (name_.empty()) {
      close(ends[0]);
      close(ends[1]);
      return -1;
    }
    server_.fd = ends[0];
    return ends[1];
  }

  // The client has until `time` to take the rest.
  void CloseAt(absl::Time time) { close_at_ = std::min(close_at_, time); }
  // It is not to be closed by the clock.
  void Keep() { close_at_ = absl::InfiniteFuture(); }
  absl::Time close_at() const { return close_at_; }

  // Moves what can be moved at once, and adds to `refused` the messages that were refused.
  Progress Pump(std::string& buffer, absl::Time now, int64_t& refused) {
    if (now >= close_at_) {
      return Progress::kOver;
    }
    return refuser_.has_value() ? PumpRefuser(buffer) : PumpBoth(buffer, refused);
  }

 private:
  struct Side {
    int fd = -1;
    bool ended = false;   // nothing more comes from it
    std::string pending;  // what is to be written to it
  };

  static bool Register(int epoll, int fd, uint64_t number) {
    // By their edges, so that a side that cannot be served yet wakes nobody: Pump is called until it makes no
    // progress.
    epoll_event event{.events = EPOLLIN | EPOLLOUT | EPOLLRDHUP | EPOLLET, .data = {.u64 = number}};
    return epoll_ctl(epoll, EPOLL_CTL_ADD, fd, &event) == 0;
  }

  Progress PumpBoth(std::string& buffer, int64_t& refused) {
    const int64_t refused_before = limit_.num_refused();
    MessageLimit::Output out;
    bool good = true;
    bool moved = false;
    if (server_.pending.empty() && client_.pending.size() < kReadBytes) {
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
    const bool over =
        (client_.ended && server_.pending.empty()) || (server_.ended && client_.pending.empty());
    return !good || over ? Progress::kOver : moved ? Progress::kSome : Progress::kNone;
  }

  Progress PumpRefuser(std::string& buffer) {
    const std::string_view bytes = refused_enough_ ? std::string_view() : Read(client_, buffer);
    if (!bytes.empty() && !refuser_->FromClient(bytes, client_.pending)) {
      refused_enough_ = true;
    }
    const bool good = Write(client_);
    const bool over = (client_.ended || refused_enough_) && client_.pending.empty();
    return !good || over ? Progress::kOver : !bytes.empty() ? Progress::kSome : Progress::kNone;
  }

  std::string_view Read(Side& side, std::string& buffer) {
    if (side.ended) {
      return {};
    }
    const ssize_t got = &side == &client_ && tls_.has_value()
                            ? tls_->Read(buffer.data(), buffer.size())
                            : recv(side.fd, buffer.data(), buffer.size(), 0);
    if (got > 0) {
      return {buffer.data(), static_cast<size_t>(got)};
    }
    side.ended = got == 0 || (errno != EAGAIN && errno != EINTR);
    return {};
  }

  bool Write(Side& side) {
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

  Callers& callers_;
  const std::string address_;
  std::string name_;  // in callers_
  Side client_;
  std::optional<tls::TlsStream> tls_;  // of the client's side
  bool looked_ = false;                // at the first byte
  Side server_;
  std::optional<CallRefuser> refuser_;  // in place of a server
  bool refused_enough_ = false;
  MessageLimit limit_;
  absl::Time close_at_ = absl::InfiniteFuture();
};

ConnectionGuard::ConnectionGuard(const Options& options, Callers& callers, const platform::Clock& clock,
                                 std::function<void(int)> serve)
    : options_(options),
      callers_(callers),
      unfinished_{.most_bytes = options.most_unfinished_bytes},
      clock_(clock),
      serve_(std::move(serve)),
      epoll_(epoll_create1(EPOLL_CLOEXEC)),
      wake_(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)),
      buffer_(kReadBytes, '\0') {
  epoll_event event{.events = EPOLLIN, .data = {.u64 = 0}};
  epoll_ctl(epoll_, EPOLL_CTL_ADD, wake_, &event);
  thread_ = std::thread([this] { Run(); });
}

ConnectionGuard::~ConnectionGuard() {
  {
    const absl::MutexLock lock(&mu_);
    stopping_ = true;
  }
  eventfd_write(wake_, 1);
  thread_.join();
  close(wake_);
  close(epoll_);
}

void ConnectionGuard::Add(int fd) {
  auto connection = std::make_unique<Connection>(fd, options_.tls, callers_,
                                                 MessageLimit(options_.most_message_bytes, unfinished_));
  int served = -1;
  if (options_.tls == nullptr) {
    served = connection->Open({.role = tls::Role::kLocal, .name = "local"});
    if (served < 0) {
      return;  // without a descriptor there is nobody to serve it
    }
  }
  {
    const absl::MutexLock lock(&mu_);
    added_.push_back(std::move(connection));
  }
  eventfd_write(wake_, 1);
  if (served >= 0) {
    serve_(served);
  }
}

bool ConnectionGuard::TakeAdded() {
  eventfd_t count = 0;
  eventfd_read(wake_, &count);
  std::vector<std::unique_ptr<Connection>> added;
  {
    const absl::MutexLock lock(&mu_);
    if (stopping_) {
      return false;
    }
    added.swap(added_);
  }
  for (std::unique_ptr<Connection>& connection : added) {
    const uint64_t id = next_id_++;
    if (!connection->Register(epoll_, id)) {
      continue;
    }
    due_.insert(id);
    const bool greeting = connection->greeting();
    connections_.emplace(id, std::move(connection));
    if (greeting) {
      strangers_.insert(id);
      CloseAt(clock_.Now() + kHandshake, id);
    }
    if (strangers_.size() > options_.most_strangers) {
      const uint64_t oldest = *strangers_.begin();
      ++turned_away_;
      why_ = absl::StrCat("more than ", options_.most_strangers, " had not said who they are");
      Erase(oldest);
    }
  }
  return true;
}

void ConnectionGuard::Erase(uint64_t id) {
  due_.erase(id);
  strangers_.erase(id);
  connections_.erase(id);
}

void ConnectionGuard::CloseAt(absl::Time time, uint64_t id) {
  connections_.at(id)->CloseAt(time);
  closing_.emplace(time, id);
}

bool ConnectionGuard::Greet(uint64_t id, Connection& connection) {
  tls::Identity identity;
  switch (connection.Greet(identity, why_)) {
    case Connection::Greeting::kWait:
      due_.erase(id);
      return false;
    case Connection::Greeting::kOver:
      Erase(id);
      return false;
    case Connection::Greeting::kRefused:
      ++turned_away_;
      absl::StrAppend(&why_, " (", connection.address(), ")");
      CloseAt(clock_.Now() + kLinger, id);
      return true;
    case Connection::Greeting::kKnown:
      break;
  }
  strangers_.erase(id);
  connection.Keep();
  const int served = connection.Open(identity);
  if (served < 0) {
    Erase(id);
    return false;
  }
  if (!connection.RegisterServer(epoll_, id)) {
    close(served);
    Erase(id);
    return false;
  }
  serve_(served);
  return true;
}

void ConnectionGuard::Serve(uint64_t id) {
  const auto it = connections_.find(id);
  if (it == connections_.end()) {
    due_.erase(id);
    return;
  }
  Connection& connection = *it->second;
  if (connection.greeting() && clock_.Now() < connection.close_at() && !Greet(id, connection)) {
    return;
  }
  const Connection::Progress progress = connection.Pump(buffer_, clock_.Now(), refused_);
  if (progress == Connection::Progress::kOver) {
    Erase(id);
  } else if (progress == Connection::Progress::kNone) {
    due_.erase(id);
  }
}

void ConnectionGuard::Tell(absl::Time now) {
  if (refused_ > 0 && now - told_ >= kTellEvery) {
    told_ = now;
    platform::Log(platform::LogLevel::kWarning,
                  "messages that were too long, by themselves or together, were refused",
                  {{"messages", absl::StrCat(std::exchange(refused_, 0))},
                   {"most_bytes", absl::StrCat(options_.most_message_bytes)},
                   {"most_unfinished_bytes", absl::StrCat(unfinished_.most_bytes)}});
  }
  if (turned_away_ > 0 && now - told_of_clients_ >= kTellEvery) {
    told_of_clients_ = now;
    platform::Log(platform::LogLevel::kWarning, "clients that have not shown who they are were turned away",
                  {{"clients", absl::StrCat(std::exchange(turned_away_, 0))}, {"last", why_}});
  }
}

void ConnectionGuard::Run() {
  std::array<epoll_event, 64> events{};
  while (true) {
    int patience = -1;  // milliseconds
    if (!due_.empty()) {
      patience = 0;
    } else if (!closing_.empty()) {
      const absl::Duration left =
          std::clamp(closing_.begin()->first - clock_.Now(), absl::ZeroDuration(), kHandshake);
      patience = static_cast<int>(absl::ToInt64Milliseconds(left)) + 1;
    }
    const int ready = epoll_wait(epoll_, events.data(), static_cast<int>(events.size()), patience);
    const absl::Time now = clock_.Now();
    for (int i = 0; i < ready; ++i) {
      const epoll_event& event = events.at(static_cast<size_t>(i));
      if (event.data.u64 == 0) {
        if (!TakeAdded()) {
          connections_.clear();
          return;
        }
        continue;
      }
      const uint64_t id = event.data.u64 / 2;
      const auto it = connections_.find(id);
      if (it == connections_.end()) {
        continue;
      }
      const bool of_server = event.data.u64 % 2 == 1;
      if (of_server && (event.events & (EPOLLHUP | EPOLLRDHUP | EPOLLERR)) != 0) {
        CloseAt(now + kLinger, id);
      }
      due_.insert(id);
    }
    for (; !closing_.empty() && closing_.begin()->first <= now; closing_.erase(closing_.begin())) {
      due_.insert(closing_.begin()->second);
    }
    // One piece of each, so that none starves the others.
    for (const uint64_t id : std::vector<uint64_t>(due_.begin(), due_.end())) {
      Serve(id);
    }
    Tell(now);
  }
}

}  // namespace tandem::controller
