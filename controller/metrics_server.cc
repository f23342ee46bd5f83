#include "controller/metrics_server.h"

#include <poll.h>
#include <prometheus/text_serializer.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "platform/clock.h"

namespace tandem::controller {
namespace {

constexpr absl::Duration kRequestTime = absl::Seconds(2);
constexpr absl::Duration kAnswerTime = absl::Seconds(10);
constexpr size_t kMostConnections = 256;
constexpr size_t kMostRequestBytes = 8192;

std::string Answer(const char* status, const char* headers, const std::string& body) {
  return absl::StrCat("HTTP/1.1 ", status, "\r\n", headers, "Content-Length: ", body.size(),
                      "\r\nConnection: close\r\n\r\n", body);
}

}  // namespace

absl::StatusOr<std::unique_ptr<MetricsServer>> MetricsServer::Start(
    const std::string& address, std::shared_ptr<const prometheus::Collectable> metrics) {
  absl::StatusOr<std::unique_ptr<Listener>> listener =
      Listener::Open(address, "--metrics-listen (or --metrics-listen=off)");
  if (!listener.ok()) {
    return listener.status();
  }
  return std::unique_ptr<MetricsServer>(new MetricsServer(*std::move(listener), std::move(metrics)));
}

MetricsServer::MetricsServer(std::unique_ptr<Listener> listener,
                             std::shared_ptr<const prometheus::Collectable> metrics)
    : metrics_(std::move(metrics)),
      wake_(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)),
      listener_(std::move(listener)) {
  thread_ = std::thread([this] { Run(); });
  listener_->Start([this](int fd) { Add(fd); });
}

MetricsServer::~MetricsServer() {
  listener_.reset();
  {
    const absl::MutexLock lock(&mu_);
    stopping_ = true;
  }
  eventfd_write(wake_, 1);
  thread_.join();
  for (const Connection& connection : connections_) {
    close(connection.fd);
  }
  close(wake_);
}

void MetricsServer::Add(int fd) {
  {
    const absl::MutexLock lock(&mu_);
    added_.push_back(fd);
  }
  eventfd_write(wake_, 1);
}

bool MetricsServer::TakeAdded(absl::Time now) {
  eventfd_t count = 0;
  eventfd_read(wake_, &count);
  std::vector<int> added;
  bool stopping = false;
  {
    const absl::MutexLock lock(&mu_);
    added.swap(added_);
    stopping = stopping_;
  }
  for (const int fd : added) {
    connections_.push_back({.fd = fd, .until = now + kRequestTime});
    if (connections_.size() > kMostConnections) {
      close(connections_.front().fd);
      connections_.pop_front();
    }
  }
  return !stopping;
}

std::string MetricsServer::AnswerTo(const std::string& request) const {
  const std::vector<std::string> line =
      absl::StrSplit(request.substr(0, request.find("\r\n")), absl::MaxSplits(' ', 2));
  if (line.size() != 3 || !absl::StartsWith(line[2], "HTTP/1.")) {
    return Answer("400 Bad Request", "", "not HTTP/1; try GET /metrics\n");
  }
  if (line[0] != "GET") {
    return Answer("405 Method Not Allowed", "Allow: GET\r\n", "only GET is served\n");
  }
  if (line[1].substr(0, line[1].find('?')) != "/metrics") {
    return Answer("404 Not Found", "", "the metrics are at /metrics\n");
  }
  return Answer("200 OK", "Content-Type: text/plain; version=0.0.4; charset=utf-8\r\n",
                prometheus::TextSerializer().Serialize(metrics_->Collect()));
}

bool MetricsServer::Serve(Connection& connection, absl::Time now) const {
  if (connection.answer.empty()) {
    std::array<char, kMostRequestBytes> buffer{};
    const ssize_t got = recv(connection.fd, buffer.data(), buffer.size(), 0);
    if (got <= 0) {
      return got < 0 && (errno == EAGAIN || errno == EINTR);
    }
    connection.request.append(buffer.data(), static_cast<size_t>(got));
    const bool whole = absl::StrContains(connection.request, "\r\n\r\n");
    if (!whole && connection.request.size() < kMostRequestBytes) {
      return true;
    }
    connection.answer = whole ? AnswerTo(connection.request)
                              : Answer("431 Request Header Fields Too Large", "", "at most 8 kB\n");
    connection.until = now + kAnswerTime;
  }
  const ssize_t sent = send(connection.fd, connection.answer.data(), connection.answer.size(), MSG_NOSIGNAL);
  if (sent < 0) {
    return errno == EAGAIN || errno == EINTR;
  }
  connection.answer.erase(0, static_cast<size_t>(sent));
  return !connection.answer.empty();
}

void MetricsServer::Run() {
  std::vector<pollfd> waiting;
  while (true) {
    absl::Time until = absl::InfiniteFuture();
    waiting.assign(1, {.fd = wake_, .events = POLLIN, .revents = 0});
    for (const Connection& connection : connections_) {
      const bool answering = !connection.answer.empty();
      waiting.push_back(
          {.fd = connection.fd, .events = static_cast<int16_t>(answering ? POLLOUT : POLLIN), .revents = 0});
      until = std::min(until, connection.until);
    }
    const int64_t patience =
        until == absl::InfiniteFuture()
            ? -1
            : std::max<int64_t>(0, absl::ToInt64Milliseconds(until - platform::SteadyClock().Now()) + 1);
    poll(waiting.data(), waiting.size(), static_cast<int>(patience));
    const absl::Time now = platform::SteadyClock().Now();
    size_t i = 1;
    for (auto it = connections_.begin(); it != connections_.end(); ++i) {
      const bool keep = waiting[i].revents == 0 || Serve(*it, now);
      if (keep && now < it->until) {
        ++it;
        continue;
      }
      close(it->fd);
      it = connections_.erase(it);
    }
    if (waiting[0].revents != 0 && !TakeAdded(now)) {
      return;
    }
  }
}

}  // namespace tandem::controller
