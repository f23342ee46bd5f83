// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "controller/rpc/listener.h"
#include "platform/clock.h"

struct MHD_Connection;
struct MHD_Daemon;

namespace tandem::controller {

// The fields in the query of a URL, decoded, in their order: "page_size=10&job=a%20b".
using QueryFields = std::vector<std::pair<std::string, std::string>>;

struct HttpRequest {
  std::string path;  // decoded: "/metrics"
  QueryFields query = {};
  bool is_post = false;          // else GET or HEAD
  std::string host;              // the Host header; empty: none
  std::string authorization;     // the Authorization header; empty: none
  std::string client_ip;         // "127.0.0.1", "::1"
  std::string client;            // with its port: "127.0.0.1:53122"
  bool from_other_site = false;  // a browser says that another site's page makes the request
};

struct HttpAnswer {
  int status = 200;
  std::string type = "text/plain; charset=utf-8";
  std::string body;
  std::vector<std::pair<std::string, std::string>> headers;  // beside those that HttpServer adds
  std::shared_ptr<void> held = nullptr;  // released when the client has the answer or is gone
};

// Answers GET, HEAD and POST, one request per connection, until it is destroyed. Other methods get 405, a
// request with a body gets 413. Each connection has a thread. When a connection comes, those that have sent
// no request for a second are closed; a client that does not read its answer is disconnected after five
// seconds. Measured: with 1,000 connections that sent nothing, or half a request, a scrape was answered
// within 0.6 s.
class HttpServer {
 public:
  // Called from many threads at once.
  using Handler = std::function<HttpAnswer(const HttpRequest&)>;

  // `address` is "HOST:PORT" (no host: every address of this machine; port 0: any free port). Errors are one
  // line: Unavailable if the address cannot be bound, InvalidArgument if it is malformed.
  static absl::StatusOr<std::unique_ptr<HttpServer>> Start(const std::string& address, Handler handler);
  // Waits for the answers that are in progress.
  ~HttpServer();

  // The address, with the real port if 0 was asked for.
  const std::string& address() const { return listener_->address(); }

 private:
  HttpServer(Handler handler, std::unique_ptr<Listener> listener)
      : handler_(std::move(handler)), listener_(std::move(listener)) {}
  absl::Status Serve();
  HttpAnswer Answer(MHD_Connection* connection, const char* path, std::string_view method);
  // Adds a connection, and closes those that have had their time to send a request.
  void Add(int fd) ABSL_LOCKS_EXCLUDED(mu_);
  void Forget(int fd) ABSL_LOCKS_EXCLUDED(mu_);

  const Handler handler_;
  const platform::Clock& clock_ = platform::SteadyClock();
  std::unique_ptr<Listener> listener_;
  MHD_Daemon* daemon_ = nullptr;
  absl::Mutex mu_;
  // The connections that have not sent a request, and when each was opened.
  std::map<int, absl::Time> without_request_ ABSL_GUARDED_BY(mu_);
};

}  // namespace tandem::controller
