// SPDX-License-Identifier: Apache-2.0
#include "controller/http/http_server.h"

#include <microhttpd.h>
#include <sys/socket.h>
#include <unistd.h>

#include "controller/rpc/open_connections.h"
#include "platform/net_address.h"
#include "platform/status_macros.h"

namespace tandem::controller {
namespace {

constexpr unsigned kMostConnections = 1024;
constexpr unsigned kIdleSeconds = 5;  // how long a client may read nothing of its answer
constexpr absl::Duration kRequestTime = absl::Seconds(1);
constexpr size_t kStackBytes = 1 << 20;

std::string HeaderOf(MHD_Connection* connection, const char* name) {
  const char* const value = MHD_lookup_connection_value(connection, MHD_HEADER_KIND, name);
  return value == nullptr ? "" : value;
}

int SocketOf(MHD_Connection* connection) {
  return MHD_get_connection_info(connection, MHD_CONNECTION_INFO_CONNECTION_FD)->connect_fd;
}

QueryFields QueryOf(MHD_Connection* connection) {
  QueryFields out;
  MHD_get_connection_values_n(
      connection, MHD_GET_ARGUMENT_KIND,
      [](void* fields, MHD_ValueKind /*kind*/, const char* name, size_t name_size, const char* value,
         size_t value_size) {
        static_cast<QueryFields*>(fields)->emplace_back(
            std::string(name, name_size), value == nullptr ? "" : std::string(value, value_size));
        return MHD_YES;
      },
      &out);
  return out;
}

MHD_Result Send(MHD_Connection* connection, HttpAnswer answer) {
  // The library frees the answer after the client has read it or left.
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

absl::Status HttpServer::Serve() {
  const MHD_AccessHandlerCallback answer =
      [](void* self, MHD_Connection* connection, const char* path, const char* method,
         const char* /*version*/, const char* /*body*/, size_t* /*body_size*/, void** /*of_request*/) {
        auto& server = *static_cast<HttpServer*>(self);
        server.Forget(SocketOf(connection));
        return Send(connection, server.Answer(connection, path, method));
      };
  const MHD_NotifyConnectionCallback notify = [](void* self, MHD_Connection* connection, void** /*of_it*/,
                                                 MHD_ConnectionNotificationCode code) {
    if (code == MHD_CONNECTION_NOTIFY_CLOSED) {
      static_cast<HttpServer*>(self)->Forget(SocketOf(connection));
    }
  };
  daemon_ = MHD_start_daemon(MHD_USE_THREAD_PER_CONNECTION | MHD_USE_INTERNAL_POLLING_THREAD | MHD_USE_POLL |
                                 MHD_USE_NO_LISTEN_SOCKET | MHD_USE_ITC,
                             0, nullptr, nullptr, answer, this, MHD_OPTION_CONNECTION_LIMIT, kMostConnections,
                             MHD_OPTION_CONNECTION_TIMEOUT, kIdleSeconds, MHD_OPTION_THREAD_STACK_SIZE,
                             kStackBytes, MHD_OPTION_NOTIFY_CONNECTION, notify, this, MHD_OPTION_END);
  if (daemon_ == nullptr) {
    return absl::UnavailableError("no thread can be started for metrics and the page");
  }
  listener_->Start([this](int fd) { Add(fd); });
  return absl::OkStatus();
}

HttpAnswer HttpServer::Answer(MHD_Connection* connection, const char* path, std::string_view method) {
  if (method != "GET" && method != "HEAD" && method != "POST") {
    return {.status = 405,
            .body = "only GET and POST are answered here\n",
            .headers = {{"Allow", "GET, HEAD, POST"}}};
  }
  if (HeaderOf(connection, "Content-Length").find_first_not_of('0') != std::string::npos ||
      !HeaderOf(connection, "Transfer-Encoding").empty()) {
    return {.status = 413, .body = "a request has no body here\n"};
  }
  const std::string client = AddressOfSocket(SocketOf(connection));
  return handler_({.path = path,
                   .query = QueryOf(connection),
                   .is_post = method == "POST",
                   .host = HeaderOf(connection, "Host"),
                   .authorization = HeaderOf(connection, "Authorization"),
                   .client_ip = platform::HostOf(client),
                   .client = client,
                   .from_other_site = HeaderOf(connection, "Sec-Fetch-Site") == "cross-site"});
}

void HttpServer::Add(int fd) {
  sockaddr_storage name{};
  socklen_t length = sizeof(name);
  if (getpeername(fd, reinterpret_cast<sockaddr*>(&name), &length) != 0) {
    close(fd);  // the client has left again
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
  // Closes the connection if there are too many.
  if (MHD_add_connection(daemon_, fd, reinterpret_cast<const sockaddr*>(&name), length) != MHD_YES) {
    Forget(fd);
  }
}

void HttpServer::Forget(int fd) {
  const absl::MutexLock lock(&mu_);
  without_request_.erase(fd);
}

absl::StatusOr<std::unique_ptr<HttpServer>> HttpServer::Start(const std::string& address, Handler handler) {
  if (const std::string why = platform::WhyNotAddress(address, {.every_host = true, .least_port = 0});
      !why.empty()) {
    return absl::InvalidArgumentError(why);
  }
  TANDEM_ASSIGN_OR_RETURN(std::unique_ptr<Listener> listener, Listener::Open(address, "--metrics-listen"));
  std::unique_ptr<HttpServer> server(new HttpServer(std::move(handler), std::move(listener)));
  TANDEM_RETURN_IF_ERROR(server->Serve());
  return server;
}

HttpServer::~HttpServer() {
  listener_.reset();  // so that nothing connects any more
  if (daemon_ != nullptr) {
    MHD_stop_daemon(daemon_);
  }
}

}  // namespace tandem::controller
