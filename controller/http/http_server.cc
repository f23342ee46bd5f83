// SPDX-License-Identifier: Apache-2.0
#include "controller/http/http_server.h"

#include <arpa/inet.h>
#include <civetweb.h>
#include <sys/socket.h>
#include <unistd.h>

#include <atomic>
#include <string_view>
#include <thread>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "config/address.h"

namespace tandem::controller {
namespace {

// A connection from this machine, which is closed at once.
void Connect(int port) {
  sockaddr_in name{};
  name.sin_family = AF_INET;
  name.sin_port = htons(static_cast<uint16_t>(port));
  name.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  if (fd >= 0) {
    static_cast<void>(connect(fd, reinterpret_cast<const sockaddr*>(&name), sizeof(name)));
    close(fd);
  }
}

std::string_view TextOf(const char* text) { return text == nullptr ? std::string_view() : text; }

void Send(mg_connection* connection, const HttpAnswer& answer, bool with_body) {
  std::string head =
      absl::StrCat("HTTP/1.1 ", answer.status, " ", mg_get_response_code_text(connection, answer.status),
                   "\r\nContent-Type: ", answer.type, "\r\nContent-Length: ", answer.body.size(),
                   "\r\nX-Content-Type-Options: nosniff\r\nConnection: close\r\n");
  for (const auto& [name, value] : answer.headers) {
    absl::StrAppend(&head, name, ": ", value, "\r\n");
  }
  head += "\r\n";
  mg_write(connection, head.data(), head.size());
  if (with_body) {
    mg_write(connection, answer.body.data(), answer.body.size());
  }
}

int Answer(mg_connection* connection) {
  const mg_request_info& info = *mg_get_request_info(connection);
  const auto& handler = *static_cast<const HttpServer::Handler*>(info.user_data);
  const std::string_view method = TextOf(info.request_method);
  HttpAnswer answer;
  if (method != "GET" && method != "HEAD" && method != "POST") {
    answer = {.status = 405,
              .body = "only GET and POST are answered here\n",
              .headers = {{"Allow", "GET, HEAD, POST"}}};
  } else if (info.content_length > 0 || mg_get_header(connection, "Transfer-Encoding") != nullptr) {
    answer = {.status = 413, .body = "a request has no body here\n"};
  } else {
    const std::string ip = info.remote_addr;
    answer =
        handler({.path = std::string(TextOf(info.local_uri)),
                 .query = std::string(TextOf(info.query_string)),
                 .is_post = method == "POST",
                 .host = std::string(TextOf(mg_get_header(connection, "Host"))),
                 .authorization = std::string(TextOf(mg_get_header(connection, "Authorization"))),
                 .client_ip = ip,
                 .client = absl::StrCat(ip, ":", info.remote_port),
                 .from_other_site = TextOf(mg_get_header(connection, "Sec-Fetch-Site")) == "cross-site"});
  }
  Send(connection, answer, method != "HEAD");
  return answer.status;
}

}  // namespace

struct HttpServer::Civetweb {
  ~Civetweb() {
    if (context != nullptr) {
      mg_stop(context);
    }
  }
  mg_context* context = nullptr;
};

absl::StatusOr<std::unique_ptr<HttpServer>> HttpServer::Start(const std::string& address, Handler handler) {
  if (const std::string why =
          config::WhyNotAddress(address, {.every_host = true, .ipv6 = false, .least_port = 0});
      !why.empty()) {
    return absl::InvalidArgumentError(why);
  }
  const size_t colon = address.rfind(':');
  const std::string host = address.substr(0, colon);
  const std::string listen = host.empty() ? address.substr(colon + 1) : address;
  const char* options[] = {
      "listening_ports", listen.c_str(),
      // Each connection holds a thread until it is answered or its time is up. 128 threads cost 5 MB.
      "num_threads", "128", "request_timeout_ms", "500",
      // Otherwise a connection holds its thread between two requests too.
      "enable_keep_alive", "no", nullptr};
  mg_callbacks callbacks = {};
  callbacks.begin_request = Answer;
  std::unique_ptr<HttpServer> server(new HttpServer(std::move(handler)));
  mg_init_library(MG_FEATURES_DEFAULT);
  server->civetweb_->context = mg_start(&callbacks, const_cast<Handler*>(&server->handler_), options);
  mg_server_port port = {};
  if (server->civetweb_->context == nullptr ||
      mg_get_server_ports(server->civetweb_->context, 1, &port) != 1) {
    return absl::UnavailableError(
        absl::StrCat("cannot serve metrics and the page on ", address,
                     ": the address is taken, or not one of this machine; give another --metrics-listen, or "
                     "--metrics-listen=off"));
  }
  server->port_ = port.port;
  server->address_ = absl::StrCat(host, ":", port.port);
  return server;
}

HttpServer::HttpServer(Handler handler)
    : handler_(std::move(handler)), civetweb_(std::make_unique<Civetweb>()) {}

HttpServer::~HttpServer() {
  // civetweb 1.15 sees that it is to end when somebody connects, otherwise only every two seconds.
  std::atomic<bool> ended = false;
  std::thread waker([&ended, port = port_] {
    while (!ended) {
      Connect(port);
      absl::SleepFor(absl::Milliseconds(10));
    }
  });
  civetweb_.reset();
  ended = true;
  waker.join();
}

}  // namespace tandem::controller
