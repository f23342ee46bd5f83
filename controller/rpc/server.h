// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "controller/core/state.h"
#include "platform/clock.h"
#include "platform/random.h"
#include "tls/identity.h"
#include "tls/tls_files.h"

namespace tandem::controller {

// Whether the page is served beside the metrics, where everybody who reaches the address may read it.
enum class PageMode { kOff, kAuto /* where the address is one of this machine alone */, kOn };

struct ServerOptions {
  std::string state_directory;
  std::vector<std::string> listen = {"127.0.0.1:7471"};  // "host:port" (port 0: any) or "unix:/path"
  // For every address but unix sockets, which are guarded by their file's permissions. Not given: addresses
  // that other machines reach are refused.
  tls::TlsFiles tls = {};
  std::string tls_domain = tls::kDefaultDomain;   // of the identities in certificates
  std::string metrics_listen = "127.0.0.1:9464";  // "off": none
  PageMode page = PageMode::kAuto;                // there
  Limits limits;
  absl::Duration orphan_timeout = absl::Seconds(600);
  // Called once, from another thread, where the store has failed: nothing more is decided, and every call
  // fails with the reason. The process should end; this object may not be destroyed by the call itself.
  std::function<void(const absl::Status&)> fatal;
};

// A whole controller: store, history, engine, gRPC services, metrics. Thread-safe.
class Server {
 public:
  // Serves when it returns. Errors are one line each, and say what to do.
  static absl::StatusOr<std::unique_ptr<Server>> Start(const ServerOptions& options,
                                                       const platform::Clock& clock,
                                                       platform::Random& random);
  // Ends the streams, then closes the store; a second or less.
  ~Server();

  // The addresses it listens on, with the real port where 0 was asked for.
  const std::vector<std::string>& addresses() const;
  // "" where there are none.
  const std::string& metrics_address() const;

 private:
  struct Parts;
  explicit Server(std::unique_ptr<Parts> parts);

  std::unique_ptr<Parts> parts_;
};

}  // namespace tandem::controller
