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
// request with a body 413: nothing here reads one. Each connection has a thread. One that has not sent its
// request after a second gives way to the next that connects, and one that does not read ends after five;
// with 400 that say nothing, or half of a request, and with 1000, a scrape was answered within 0.6 s.
class HttpServer {
 public:
  // Called from many threads at once.
  using Handler = std::function<HttpAnswer(const HttpRequest&)>;

  // `address` is "HOST:PORT" (no host: every address of this machine; port 0: any). Unavailable, in one
  // line, where it cannot be had; InvalidArgument where it is none.
  static absl::StatusOr<std::unique_ptr<HttpServer>> Start(const std::string& address, Handler handler);
  // Waits for the answers that are being made.
  ~HttpServer();

  // With the port that it has.
  const std::string& address() const;

 private:
  class Daemon;  // keeps its library out of this header
  explicit HttpServer(std::unique_ptr<Daemon> daemon);

  const std::unique_ptr<Daemon> daemon_;
};

}  // namespace tandem::controller
