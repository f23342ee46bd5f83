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
  std::shared_ptr<void> held = nullptr;  // released when the client has the answer or is gone
};

// Answers GET, HEAD and POST while it lives, one request per connection. Other methods get 405, a request
// with a body gets 413. Each connection has a thread. A connection that has not sent its request after a
// second gives way to the next one; a client that does not read its answer is disconnected after five
// seconds. Measured: with 1,000 connections that sent nothing, or half a request, a scrape was answered
// within 0.6 s.
class HttpServer {
 public:
  // Called from many threads at once.
  using Handler = std::function<HttpAnswer(const HttpRequest&)>;

  // `address` is "HOST:PORT" (no host: every address of this machine; port 0: any). Errors are one line:
  // Unavailable if the address cannot be bound, InvalidArgument if it is malformed.
  static absl::StatusOr<std::unique_ptr<HttpServer>> Start(const std::string& address, Handler handler);
  // Waits for the answers in progress.
  ~HttpServer();

  // The address, with the real port if 0 was asked for.
  const std::string& address() const;

 private:
  class Daemon;  // keeps its library out of this header
  explicit HttpServer(std::unique_ptr<Daemon> daemon);

  const std::unique_ptr<Daemon> daemon_;
};

}  // namespace tandem::controller
