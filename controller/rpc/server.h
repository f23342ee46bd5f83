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

// Server makes and owns everything. At its start, in order: Store and History open; Engine, Sessions,
// Watches, UploadRelay and Metrics are made; FrontDoors take the addresses (Listener) and make gRPC servers
// of JobsService (users) and WorkersService (workers); then they accept.
//
// A call passes the interceptors and Access::Admit, and becomes an input of the Engine or a read of Store and
// History. What the Engine publishes goes to Sessions, Watches and Metrics. Each stream is an object of its
// own (Session, ReportsStream, WatchStream, upload_stream.h); all of them end before the Engine does.

// A whole controller: store, history, engine, gRPC services, metrics. Thread-safe.
class Server {
 public:
  // Serves when it returns. Errors are one line each, and say what to do: InvalidArgument is CheckOptions',
  // any other error is what this machine refuses.
  static absl::StatusOr<std::unique_ptr<Server>> Start(const ServerOptions& options,
                                                       const platform::Clock& clock,
                                                       platform::Random& random);
  // Ends the streams, then closes the store. Takes a second or less.
  ~Server();

  // The addresses it listens on, with the real port if 0 was asked for: --listen, and --worker-listen.
  const std::vector<std::string>& addresses() const;
  const std::vector<std::string>& worker_addresses() const;
  // "" if metrics are off.
  const std::string& metrics_address() const;

 private:
  struct Parts;
  explicit Server(std::unique_ptr<Parts> parts);

  std::unique_ptr<Parts> parts_;
};

}  // namespace tandem::controller
