// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "controller/core/state.h"
#include "tls/identity.h"
#include "tls/tls_files.h"

namespace tandem::controller {

// Whether the page is served beside the metrics. Every client that reaches the address may read it.
enum class PageMode { kOff, kAuto /* if only this machine reaches the address */, kOn };

struct ServerOptions {
  std::string state_directory;
  std::vector<std::string> listen = {"127.0.0.1:7471"};  // "host:port" (port 0: any) or "unix:/path"
  // Addresses of workers alone, whose messages then use other memory than those of users. Empty: `listen` is
  // for all.
  std::vector<std::string> worker_listen;
  // Used at every address but unix sockets, which the permissions of their file guard. Without them,
  // addresses that other machines reach are refused.
  tls::TlsFiles tls = {};
  std::string tls_domain = tls::kDefaultDomain;   // of the identities in certificates
  std::string metrics_listen = "127.0.0.1:9464";  // "off": no such port
  PageMode page = PageMode::kAuto;                // there
  Limits limits;
  absl::Duration orphan_timeout = absl::Seconds(600);
  // How often the server looks for new TLS files and for connections that must end.
  absl::Duration sweep_every = absl::Seconds(1);
  // Called once, from another thread, when the store has failed: nothing more is decided, and every call
  // fails with the reason. The process should end; this object may not be destroyed by the call itself.
  std::function<void(const absl::Status&)> fatal;
};

// Returns InvalidArgument, in one line, if the options say what no machine allows. Nothing is opened, and no
// name resolved.
absl::Status CheckOptions(const ServerOptions& options);

// Return why --listen and --worker-listen, or --metrics-listen, refuse this address; "" if they take it.
std::string WhyNotListen(const std::string& address);
std::string WhyNotMetricsListen(const std::string& address);

}  // namespace tandem::controller
