// SPDX-License-Identifier: Apache-2.0
#include "controller/http/http_server.h"

#include <microhttpd.h>
#include <netdb.h>
#include <sys/socket.h>
#include <unistd.h>

#include <map>
#include <string_view>

#include "absl/base/thread_annotations.h"
#include "absl/strings/str_cat.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "controller/rpc/listener.h"
#include "platform/clock.h"
#include "platform/net_address.h"
#include "platform/status_macros.h"

namespace tandem::controller {
namespace {

constexpr unsigned kMostConnections = 1024;
constexpr unsigned kIdleSeconds = 5;  // that a client may read nothing of its answer
constexpr absl::Duration kRequestTime = absl::Seconds(1);
constexpr size_t kStackBytes = 1 << 20;

// Of a request until it is over: its path and query as they came.
struct RawRequest {
  std::string target;
};

void* KeepTarget(void* /*daemon*/, const char* target, MHD_Connection* /*connection*/) {
  return new RawRequest{target};
}

void DropTarget(void* /*daemon*/, MHD_Connection* /*connection*/, void** request,
                MHD_RequestTerminationCode /*why*/) {
  delete static_cast<RawRequest*>(*request);
  *request = nullptr;
}

std::string HeaderOf(MHD_Connection* connection, const char* name) {
  const char* const value = MHD_lookup_connection_value(connection, MHD_HEADER_KIND, name);
  return value == nullptr ? "" : value;
}

int SocketOf(MHD_Connection* connection) {
  return MHD_get_connection_info(connection, MHD_CONNECTION_INFO_CONNECTION_FD)->connect_fd;
}

// The address and the port of the other side.
std::pair<std::string, std::string> PeerOf(int socket) {
  sockaddr_storage name{};
  socklen_t length = sizeof(name);
  char host[NI_MAXHOST] = "";
  char port[NI_MAXSERV] = "";
  if (getpeername(socket, reinterpret_cast<sockaddr*>(&name), &length) != 0 ||
      getnameinfo(reinterpret_cast<const sockaddr*>(&name), length, host, sizeof(host), port, sizeof(port),
                  NI_NUMERICHOST | NI_NUMERICSERV) != 0) {
    return {};
  }
  return {host, port};
}

HttpRequest RequestOf(MHD_Connection* connection, const char* path, std::string_view method,
                      const RawRequest& raw) {
  const size_t question = raw.target.find('?');
  const auto [ip, port] = PeerOf(SocketOf(connection));
  return {.path = path,
          .query = question == std::string::npos ? "" : raw.target.substr(question + 1),
          .is_post = method == "POST",
          .host = HeaderOf(connection, "Host"),
          .authorization = HeaderOf(connection, "Authorization"),
          .client_ip = ip,
          .client = absl::StrCat(ip, ":", port),
          .from_other_site = HeaderOf(connection, "Sec-Fetch-Site") == "cross-site"};
}

MHD_Result Send(MHD_Connection* connection, HttpAnswer answer) {
  // The library frees what it sends when the client has it, or is gone.
  auto* const owned = new HttpAnswer(std::move(answer));
  MHD_Response* const response = MHD_create_response_from_buffer_with_free_callback_cls(
      owned->body.size(), owned->body.data(), [](void* sent) { delete static_cast<HttpAnswer*>(sent); },
      owned);
  if (response == nullptr) {
    delete owned;
    return MHD_NO;
  }
  const auto add = [response](const char* name, const std::string& value) {
    static_cast<void>(MHD_add_response_header(response, name, value.c_str()));
  };
  add("Content-Type", owned->type);
  add("X-Content-Type-Options", "nosniff");
  add("Connection", "close");
  for (const auto& [name, value] : owned->headers) {
    add(name.c_str(), value);
  }
  const MHD_Result queued = MHD_queue_response(connection, static_cast<unsigned>(owned->status), response);
  MHD_destroy_response(response);
  return queued;
}

}  // namespace

class HttpServer::Daemon {
 public:
  Daemon(Handler handler, std::unique_ptr<Listener> listener)
      : handler_(std::move(handler)), listener_(std::move(listener)) {}

  ~Daemon() {
    listener_.reset();  // so that nothing connects any more
    if (daemon_ != nullptr) {
      MHD_stop_daemon(daemon_);
    }
  }

  absl::Status Start() {
    daemon_ = MHD_start_daemon(MHD_USE_THREAD_PER_CONNECTION | MHD_USE_INTERNAL_POLLING_THREAD |
                                   MHD_USE_POLL | MHD_USE_NO_LISTEN_SOCKET | MHD_USE_ITC,
                               0, nullptr, nullptr, &Answer, this, MHD_OPTION_CONNECTION_LIMIT,
                               kMostConnections, MHD_OPTION_CONNECTION_TIMEOUT, kIdleSeconds,
                               MHD_OPTION_THREAD_STACK_SIZE, kStackBytes, MHD_OPTION_URI_LOG_CALLBACK,
                               &KeepTarget, this, MHD_OPTION_NOTIFY_COMPLETED, &DropTarget, this,
                               MHD_OPTION_NOTIFY_CONNECTION, &Notify, this, MHD_OPTION_END);
    if (daemon_ == nullptr) {
      return absl::UnavailableError("no thread can be started for metrics and the page");
    }
    listener_->Start([this](int fd) { Add(fd); });
    return absl::OkStatus();
  }

  const std::string& address() const { return listener_->address(); }

 private:
  static MHD_Result Answer(void* self, MHD_Connection* connection, const char* path, const char* method_text,
                           const char* /*version*/, const char* /*body*/, size_t* /*body_size*/,
                           void** request) {
    auto& daemon = *static_cast<Daemon*>(self);
    daemon.Forget(SocketOf(connection));
    const std::string_view method = method_text;
    const std::string length = HeaderOf(connection, "Content-Length");
    if (method != "GET" && method != "HEAD" && method != "POST") {
      return Send(connection, {.status = 405,
                               .body = "only GET and POST are answered here\n",
                               .headers = {{"Allow", "GET, HEAD, POST"}}});
    }
    if (length.find_first_not_of('0') != std::string::npos ||
        !HeaderOf(connection, "Transfer-Encoding").empty()) {
      return Send(connection, {.status = 413, .body = "a request has no body here\n"});
    }
    return Send(connection, daemon.handler_(RequestOf(connection, path, method,
                                                      *static_cast<const RawRequest*>(*request))));
  }

  static void Notify(void* self, MHD_Connection* connection, void** /*of_connection*/,
                     MHD_ConnectionNotificationCode code) {
    if (code == MHD_CONNECTION_NOTIFY_CLOSED) {
      static_cast<Daemon*>(self)->Forget(SocketOf(connection));
    }
  }

  // Takes a connection, and ends those that have had their time to send a request.
  void Add(int fd) ABSL_LOCKS_EXCLUDED(mu_) {
    sockaddr_storage name{};
    socklen_t length = sizeof(name);
    if (getpeername(fd, reinterpret_cast<sockaddr*>(&name), &length) != 0) {
      close(fd);  // it has left again
      return;
    }
    const absl::Time now = clock_.Now();
    {
      const absl::MutexLock lock(&mu_);
      for (const auto& [waiting, since] : without_request_) {
        if (now - since > kRequestTime) {
          shutdown(waiting, SHUT_RDWR);  // its thread sees the end, and closes it
        }
      }
      without_request_[fd] = now;
    }
    // Closes it where there are too many.
    if (MHD_add_connection(daemon_, fd, reinterpret_cast<const sockaddr*>(&name), length) != MHD_YES) {
      Forget(fd);
    }
  }

  void Forget(int fd) ABSL_LOCKS_EXCLUDED(mu_) {
    const absl::MutexLock lock(&mu_);
    without_request_.erase(fd);
  }

  const Handler handler_;
  const platform::Clock& clock_ = platform::SteadyClock();
  std::unique_ptr<Listener> listener_;
  MHD_Daemon* daemon_ = nullptr;
  absl::Mutex mu_;
  // The connections that have not sent a request, and since when they are there.
  std::map<int, absl::Time> without_request_ ABSL_GUARDED_BY(mu_);
};

absl::StatusOr<std::unique_ptr<HttpServer>> HttpServer::Start(const std::string& address, Handler handler) {
  if (const std::string why = platform::WhyNotAddress(address, {.every_host = true, .least_port = 0});
      !why.empty()) {
    return absl::InvalidArgumentError(why);
  }
  TANDEM_ASSIGN_OR_RETURN(std::unique_ptr<Listener> listener, Listener::Open(address, "--metrics-listen"));
  auto daemon = std::make_unique<Daemon>(std::move(handler), std::move(listener));
  TANDEM_RETURN_IF_ERROR(daemon->Start());
  return std::unique_ptr<HttpServer>(new HttpServer(std::move(daemon)));
}

HttpServer::HttpServer(std::unique_ptr<Daemon> daemon) : daemon_(std::move(daemon)) {}

HttpServer::~HttpServer() = default;

const std::string& HttpServer::address() const { return daemon_->address(); }

}  // namespace tandem::controller
