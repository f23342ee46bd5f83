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

// Daemon makes and owns everything. At its start, in order: Store and History open; Engine, Sessions,
// Watches, UploadRelay and Metrics are made; FrontDoors bind the addresses (Listener) and start gRPC servers
// with JobsService (for users) and WorkersService (for workers); then they accept.
//
// A call passes the interceptors and Access::Admit, and becomes an input of the Engine or a read of Store and
// History. What the Engine publishes goes to Sessions, Watches and Metrics. Each stream is an object of its
// own (Session, ReportsStream, WatchStream, upload_stream.h); all of them end before the Engine does.

// A whole controller: store, history, engine, gRPC services, metrics. Thread-safe.
class Daemon {
 public:
  // Returns when the server accepts calls. Errors are one line each, and say what to do: InvalidArgument if
  // CheckOptions refuses the options, otherwise what this machine refuses.
  static absl::StatusOr<std::unique_ptr<Daemon>> Start(const ServerOptions& options,
                                                       const platform::Clock& clock,
                                                       platform::Random& random);
  // Ends the streams, then closes the store. Takes a second or less.
  ~Daemon();

  // The addresses of --listen and of --worker-listen, with the real port if 0 was asked for.
  const std::vector<std::string>& addresses() const;
  const std::vector<std::string>& worker_addresses() const;
  // "" if metrics are off.
  const std::string& metrics_address() const;

 private:
  struct Parts;
  explicit Daemon(std::unique_ptr<Parts> parts);

  std::unique_ptr<Parts> parts_;
};

}  // namespace tandem::controller
