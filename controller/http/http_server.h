// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace tandem::controller {

struct HttpRequest {
  std::string path;              // decoded: "/metrics"
  std::string query;             // as it came, without '?': "page_size=10&job=a%20b"
  bool is_post = false;          // else GET or HEAD
  std::string host;              // the Host header; empty: none
  std::string authorization;     // the Authorization header; empty: none
  std::string client_ip;         // "127.0.0.1", "::1"
  std::string client;            // with its port: "127.0.0.1:53122"
  bool from_other_site = false;  // a browser says that a page of another site asks
};

struct HttpAnswer {
  int status = 200;
  std::string type = "text/plain; charset=utf-8";
  std::string body;
  std::vector<std::pair<std::string, std::string>> headers;  // more of them
  std::shared_ptr<void> held = nullptr;  // let go of when the client has the answer, or is gone
};

// Answers GET (and HEAD) and POST while it lives, one answer a connection; other methods get 405, and a
// request with a body 413: nothing here reads one. A connection that
// says nothing, or half of a request, takes one of 128 threads for half a second: with 400 of them, and with
// 1000, a scrape was answered within 0.6 s.
class HttpServer {
 public:
  // Called from many threads at once.
  using Handler = std::function<HttpAnswer(const HttpRequest&)>;

  // `address` is "host:port" (no host: every IPv4 address of this machine; port 0: any). Unavailable, in one
  // line, where it cannot be had; InvalidArgument where it is none, or one of IPv6: Debian's civetweb is
  // built without it.
  static absl::StatusOr<std::unique_ptr<HttpServer>> Start(const std::string& address, Handler handler);
  // Waits for the answers that are being made.
  ~HttpServer();

  // With the port that it has.
  const std::string& address() const { return address_; }

 private:
  struct Civetweb;  // keeps its header out of this one
  explicit HttpServer(Handler handler);

  const Handler handler_;
  std::string address_;
  int port_ = 0;
  std::unique_ptr<Civetweb> civetweb_;
};

}  // namespace tandem::controller
