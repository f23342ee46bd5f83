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

// Whether the page is served beside the metrics. Every client that reaches the metrics' address may read it.
enum class PageMode { kOff, kAuto /* if only this machine reaches the address */, kOn };

struct ServerOptions {
  std::string state_directory;
  std::vector<std::string> listen = {"127.0.0.1:7471"};  // "host:port" (port 0: any) or "unix:/path"
  // Addresses for workers alone. The connections of `listen` then have a limit of memory of their own. Empty:
  // `listen` is for users and workers.
  std::vector<std::string> worker_listen;
  // Used at every address but unix sockets, which the permissions of their file guard. Without TLS files,
  // addresses that other machines reach are refused.
  tls::TlsFiles tls = {};
  std::string tls_domain = tls::kDefaultDomain;   // of the identities in certificates
  std::string metrics_listen = "127.0.0.1:9464";  // "off": there is no such port
  PageMode page = PageMode::kAuto;                // there
  Limits limits;
  absl::Duration orphan_timeout = absl::Seconds(600);
  // How often the server looks for new TLS files and for connections that must end.
  absl::Duration sweep_every = absl::Seconds(1);
  // Called once, from another thread, when the store has failed: nothing more is decided, and every call
  // fails with the reason. The process should end. The callback must not destroy the Daemon.
  std::function<void(const absl::Status&)> fatal;
};

// Returns InvalidArgument, in one line, if the options are wrong on every machine. Opens no file and resolves
// no name.
absl::Status CheckOptions(const ServerOptions& options);

// Return why --listen and --worker-listen, and why --metrics-listen, refuse an address; "" if they accept it.
std::string WhyNotListen(const std::string& address);
std::string WhyNotMetricsListen(const std::string& address);

}  // namespace tandem::controller
