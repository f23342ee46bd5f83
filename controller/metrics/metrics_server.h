// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <prometheus/collectable.h>

#include <memory>
#include <string>

#include "absl/status/statusor.h"

namespace prometheus {
class Exposer;
}

namespace tandem::controller {

// Serves `metrics` at http://ADDRESS/metrics while it lives, one answer a connection. A connection that says
// nothing, or half of a request, takes one of 128 threads for half a second: with 400 of them, and with 1000,
// a scrape was answered within 0.6 s.
class MetricsServer {
 public:
  // `address` is "host:port" (no host: every address of this machine; port 0: any). Unavailable, in one line,
  // where it cannot be had.
  static absl::StatusOr<std::unique_ptr<MetricsServer>> Start(
      const std::string& address, std::shared_ptr<prometheus::Collectable> metrics);
  ~MetricsServer();

  // With the port that it has.
  const std::string& address() const { return address_; }

 private:
  MetricsServer(std::string address, int port, std::unique_ptr<prometheus::Exposer> exposer,
                std::shared_ptr<prometheus::Collectable> metrics);

  const std::string address_;
  const int port_;
  const std::shared_ptr<prometheus::Collectable> metrics_;  // the exposer holds it weakly
  std::unique_ptr<prometheus::Exposer> exposer_;
};

}  // namespace tandem::controller
