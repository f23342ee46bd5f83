#include "controller/rpc/connection_guard.h"

#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <string_view>
#include <utility>

#include "absl/strings/str_cat.h"
#include "platform/log.h"

namespace tandem::controller {
namespace {

constexpr size_t kReadBytes = 65536;
constexpr absl::Duration kTellOfRefusalsEvery = absl::Seconds(10);
// What a client gets to take the last bytes that the server has written before it closed.
constexpr absl::Duration kLinger = absl::Seconds(5);

}  // namespace

// A client's socket, and the one whose other end gRPC has.
class ConnectionGuard::Connection {
 public:
  enum class Progress { kSome, kNone, kOver };

  Connection(int client, int server, MessageLimit limit)
      : client_{.fd = client}, server_{.fd = server}, limit_(std::move(limit)) {}
  ~Connection() {
    close(client_.fd);
    close(server_.fd);
  }

  // Events of the client's socket are numbered 2 `id`, those of the server's 2 `id` + 1. False where the
  // kernel takes no more.
  bool Register(int epoll, uint64_t id) const {
    // By their edges, so that a side that cannot be served yet wakes nobody: Pump is called until it makes no
    // progress.
    epoll_event event{.events = EPOLLIN | EPOLLOUT | EPOLLRDHUP | EPOLLET, .data = {.u64 = 2 * id}};
    const bool added = epoll_ctl(epoll, EPOLL_CTL_ADD, client_.fd, &event) == 0;
    event.data.u64 = 2 * id + 1;
    return added && epoll_ctl(epoll, EPOLL_CTL_ADD, server_.fd, &event) == 0;
  }

  // gRPC has closed its end: the client has until `time` to take the rest.
  void CloseAt(absl::Time time) { close_at_ = std::min(close_at_, time); }

  // Moves what can be moved at once, and adds to `refused` the messages that were refused.
  Progress Pump(std::string& buffer, absl::Time now, int64_t& refused) {
    const int64_t refused_before = limit_.num_refused();
    MessageLimit::Output out;
    bool good = now < close_at_;
    bool moved = false;
    if (server_.pending.empty() && client_.pending.size() < kReadBytes) {
      const std::string_view bytes = Read(client_, buffer);
      moved = !bytes.empty();
      good = good && (bytes.empty() || limit_.FromClient(bytes, out));
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

 private:
  struct Side {
    int fd = -1;
    bool ended = false;   // nothing more comes from it
    std::string pending;  // what is to be written to it
  };

  static std::string_view Read(Side& side, std::string& buffer) {
    if (side.ended) {
      return {};
    }
    const ssize_t got = recv(side.fd, buffer.data(), buffer.size(), 0);
    if (got > 0) {
      return {buffer.data(), static_cast<size_t>(got)};
    }
    side.ended = got == 0 || (errno != EAGAIN && errno != EINTR);
    return {};
  }

  static bool Write(Side& side) {
    size_t written = 0;
    while (written < side.pending.size()) {
      const ssize_t sent =
          send(side.fd, side.pending.data() + written, side.pending.size() - written, MSG_NOSIGNAL);
      if (sent < 0 && errno != EINTR) {
        side.pending.erase(0, written);
        return errno == EAGAIN;
      }
      written += sent < 0 ? 0 : static_cast<size_t>(sent);
    }
    side.pending.clear();
    return true;
  }

  Side client_;
  Side server_;
  MessageLimit limit_;
  absl::Time close_at_ = absl::InfiniteFuture();
};

ConnectionGuard::ConnectionGuard(uint32_t most_message_bytes, int64_t most_unfinished_bytes,
                                 const platform::Clock& clock, std::function<void(int)> serve)
    : most_message_bytes_(most_message_bytes),
      unfinished_{.most_bytes = most_unfinished_bytes},
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
  std::array<int, 2> ends{};
  if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, ends.data()) != 0) {
    close(fd);  // without a descriptor there is nobody to serve it
    return;
  }
  {
    const absl::MutexLock lock(&mu_);
    added_.push_back(
        std::make_unique<Connection>(fd, ends[0], MessageLimit(most_message_bytes_, unfinished_)));
  }
  eventfd_write(wake_, 1);
  serve_(ends[1]);
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
    if (connection->Register(epoll_, next_id_)) {
      due_.insert(next_id_);
      connections_.emplace(next_id_++, std::move(connection));
    }
  }
  return true;
}

void ConnectionGuard::Serve(uint64_t id) {
  const auto it = connections_.find(id);
  const auto progress = it == connections_.end() ? Connection::Progress::kNone
                                                 : it->second->Pump(buffer_, clock_.Now(), refused_);
  if (progress != Connection::Progress::kSome) {
    due_.erase(id);
  }
  if (progress == Connection::Progress::kOver) {
    connections_.erase(it);
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
          std::clamp(closing_.front().first - clock_.Now(), absl::ZeroDuration(), kLinger);
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
        it->second->CloseAt(now + kLinger);
        closing_.emplace_back(now + kLinger, id);
      }
      due_.insert(id);
    }
    for (; !closing_.empty() && closing_.front().first <= now; closing_.pop_front()) {
      due_.insert(closing_.front().second);
    }
    // One piece of each, so that none starves the others.
    for (const uint64_t id : std::vector<uint64_t>(due_.begin(), due_.end())) {
      Serve(id);
    }
    if (refused_ > 0 && now - told_ >= kTellOfRefusalsEvery) {
      told_ = now;
      platform::Log(platform::LogLevel::kWarning,
                    "messages that were too long, by themselves or together, were refused",
                    {{"messages", absl::StrCat(std::exchange(refused_, 0))},
                     {"most_bytes", absl::StrCat(most_message_bytes_)},
                     {"most_unfinished_bytes", absl::StrCat(unfinished_.most_bytes)}});
    }
  }
}

}  // namespace tandem::controller
