#pragma once

#include <prometheus/collectable.h>

#include <list>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "controller/listener.h"

namespace tandem::controller {

// Serves `metrics` at http://ADDRESS/metrics while it lives, one answer a connection. Connections that say
// nothing hold nobody up, as they do with prometheus-cpp's own server, which has a thread for each of a few:
// one thread polls all of them, each has two seconds for its request and ten for the answer, and of more than
// 256 the one that has waited longest makes room.
class MetricsServer {
 public:
  // `address` is "host:port" (port 0: any). One line on errors.
  static absl::StatusOr<std::unique_ptr<MetricsServer>> Start(
      const std::string& address, std::shared_ptr<const prometheus::Collectable> metrics);
  ~MetricsServer();

  // With the port that it has.
  const std::string& address() const { return listener_->address(); }

 private:
  struct Connection {
    int fd = -1;
    absl::Time until;     // then it is closed
    std::string request;  // as far as it has come
    std::string answer;   // what is left of it
  };

  MetricsServer(std::unique_ptr<Listener> listener, std::shared_ptr<const prometheus::Collectable> metrics);

  void Run() ABSL_LOCKS_EXCLUDED(mu_);
  void Add(int fd) ABSL_LOCKS_EXCLUDED(mu_);
  // False where this object ends.
  bool TakeAdded(absl::Time now) ABSL_LOCKS_EXCLUDED(mu_);
  // False where the connection is done.
  bool Serve(Connection& connection, absl::Time now) const;
  std::string AnswerTo(const std::string& request) const;

  const std::shared_ptr<const prometheus::Collectable> metrics_;
  int wake_ = -1;  // an eventfd: something was added, or this object ends

  absl::Mutex mu_;
  bool stopping_ ABSL_GUARDED_BY(mu_) = false;
  std::vector<int> added_ ABSL_GUARDED_BY(mu_);

  std::list<Connection> connections_;  // of the thread, oldest first
  std::thread thread_;
  std::unique_ptr<Listener> listener_;
};

}  // namespace tandem::controller
