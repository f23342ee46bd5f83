// SPDX-License-Identifier: Apache-2.0
#include "controller/rpc/connection_guard.h"

#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <array>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "platform/log.h"
#include "tls/server_tls.h"

namespace tandem::controller {
namespace {

constexpr size_t kReadBytes = 65536;
constexpr absl::Duration kLogRefusalsEvery = absl::Seconds(10);
// What a client gets to take the last bytes that the server has written before it closed.
constexpr absl::Duration kLinger = absl::Seconds(5);
constexpr absl::Duration kHandshake = absl::Seconds(10);

}  // namespace

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

size_t ConnectionGuard::MostOfAWorker(uint64_t descriptors) {
  constexpr uint64_t kDescriptorsOfOne = 3;
  return std::max<size_t>(1, descriptors / kDescriptorsOfOne * 4 / 5 / 2);
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
  auto connection = std::make_unique<GuardedConnection>(
      fd, options_.tls, callers_, MessageLimit(options_.most_message_bytes, unfinished_));
  int served = -1;
  if (options_.tls == nullptr) {
    served = connection->Open({.identity = {tls::Role::kLocal, "local"}, .address = connection->address()});
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

void ConnectionGuard::Recheck() {
  {
    const absl::MutexLock lock(&mu_);
    recheck_ = true;
  }
  eventfd_write(wake_, 1);
}

bool ConnectionGuard::TakeAdded() {
  eventfd_t count = 0;
  eventfd_read(wake_, &count);
  std::vector<std::unique_ptr<GuardedConnection>> added;
  bool recheck = false;
  {
    const absl::MutexLock lock(&mu_);
    if (stopping_) {
      return false;
    }
    added.swap(added_);
    recheck = std::exchange(recheck_, false);
  }
  if (recheck) {
    // The client hears why when it dials again.
    std::vector<std::string> ended;
    std::erase_if(connections_, [&ended](const auto& entry) {
      if (entry.second->IsStillWelcome()) {
        return false;
      }
      ended.push_back(absl::StrCat(entry.second->who(), " at ", entry.second->address()));
      return true;
    });
    platform::Log(platform::LogLevel::kInfo, "connections of revoked certificates were ended",
                  {{"count", absl::StrCat(ended.size())}, {"who", absl::StrJoin(ended, ", ")}});
  }
  for (std::unique_ptr<GuardedConnection>& connection : added) {
    const bool greeting = connection->greeting();
    if (greeting && strangers_.size() >= options_.most_strangers) {
      ++turned_away_;
      why_ = absl::StrCat(options_.most_strangers, " others had not said who they are (",
                          connection->address(), ")");
      continue;
    }
    const uint64_t id = next_id_++;
    if (!connection->Register(epoll_, id)) {
      continue;
    }
    due_.insert(id);
    connections_.emplace(id, std::move(connection));
    if (greeting) {
      strangers_.insert(id);
      CloseAt(clock_.Now() + kHandshake, id);
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

bool ConnectionGuard::Greet(uint64_t id, GuardedConnection& connection) {
  Caller caller;
  absl::Status why;
  switch (connection.Greet(caller, why)) {
    case GuardedConnection::Greeting::kWait:
      due_.erase(id);
      return false;
    case GuardedConnection::Greeting::kOver:
      Erase(id);
      return false;
    case GuardedConnection::Greeting::kRefused:
      Refuse(id, connection, why);
      return true;
    case GuardedConnection::Greeting::kKnown:
      break;
  }
  const tls::Identity& identity = caller.identity;
  const size_t most = identity.role == tls::Role::kWorker ? options_.most_of_worker : options_.most_of_one;
  if (callers_.NumOf(identity) >= most) {
    Refuse(id, connection,
           absl::ResourceExhaustedError(absl::StrCat(
               tls::ToText(identity), " has ", most, " connections open, the most that one caller may have; ",
               identity.role == tls::Role::kWorker
                   ? "raise LimitNOFILE of the controller, or give a part of the pool another certificate"
                   : "close some, or share them")));
    return true;
  }
  strangers_.erase(id);
  connection.Keep();
  const int served = connection.Open(caller);
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

void ConnectionGuard::Refuse(uint64_t id, GuardedConnection& connection, const absl::Status& why) {
  connection.Refuse(why);
  ++turned_away_;
  why_ = absl::StrCat(why.message(), " (", connection.address(), ")");
  CloseAt(clock_.Now() + kLinger, id);
}

void ConnectionGuard::Serve(uint64_t id) {
  const auto it = connections_.find(id);
  if (it == connections_.end()) {
    due_.erase(id);
    return;
  }
  GuardedConnection& connection = *it->second;
  if (connection.greeting() && clock_.Now() < connection.close_at() && !Greet(id, connection)) {
    return;
  }
  const GuardedConnection::Progress progress = connection.Pump(buffer_, clock_.Now(), refused_);
  if (progress == GuardedConnection::Progress::kOver) {
    Erase(id);
  } else if (progress == GuardedConnection::Progress::kNone) {
    due_.erase(id);
  }
}

void ConnectionGuard::Tell(absl::Time now) {
  if (refused_ > 0 && now - logged_ >= kLogRefusalsEvery) {
    logged_ = now;
    platform::Log(platform::LogLevel::kWarning,
                  "messages that were too long, by themselves or together, were refused",
                  {{"messages", absl::StrCat(std::exchange(refused_, 0))},
                   {"most_bytes", absl::StrCat(options_.most_message_bytes)},
                   {"most_unfinished_bytes", absl::StrCat(unfinished_.most_bytes)}});
  }
  if (turned_away_ > 0 && now - clients_logged_ >= kLogRefusalsEvery) {
    clients_logged_ = now;
    platform::Log(platform::LogLevel::kWarning, "clients were turned away",
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
