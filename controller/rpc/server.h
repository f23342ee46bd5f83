// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "controller/rpc/server_options.h"
#include "platform/clock.h"
#include "platform/random.h"

namespace tandem::controller {

// A whole controller: store, history, engine, gRPC services, metrics. Thread-safe.
class Server {
 public:
  // Serves when it returns. Errors are one line each, and say what to do: InvalidArgument is CheckOptions',
  // any other error is what this machine refuses.
  static absl::StatusOr<std::unique_ptr<Server>> Start(const ServerOptions& options,
                                                       const platform::Clock& clock,
                                                       platform::Random& random);
  // Ends the streams, then closes the store; a second or less.
  ~Server();

  // The addresses it listens on, with the real port where 0 was asked for: --listen, and --worker-listen.
  const std::vector<std::string>& addresses() const;
  const std::vector<std::string>& worker_addresses() const;
  // "" where there are none.
  const std::string& metrics_address() const;

 private:
  struct Parts;
  explicit Server(std::unique_ptr<Parts> parts);

  std::unique_ptr<Parts> parts_;
};

}  // namespace tandem::controller
