// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "cli/terminal/environment.h"
#include "platform/host.h"
#include "tls/tls_files.h"

namespace tandem::cli {

// Where the controller listens, where that address comes from, and what this side shows it.
struct Address {
  enum class Source { kFlag, kVariable, kContext, kUp, kDefault };
  std::string target;  // "unix:/run/user/1000/tandem-x/controller", "127.0.0.1:7471"
  Source source = Source::kDefault;
  std::shared_ptr<const tls::TlsTexts> tls = nullptr;  // null: no TLS, as on unix sockets
  tls::TlsFiles files = {};                            // where `tls` is from

  // Whether the controller runs on this machine, so that the paths of a job mean the same here and there.
  // With a server name of its own, an address of this machine is the end of a tunnel, as of `kubectl
  // port-forward`.
  bool is_here() const { return platform::IsLocalAddress(target) && files.server_name.empty(); }
};

inline constexpr char kDefaultAddress[] = "127.0.0.1:7471";

// The command line's flags for the controller; empty if a flag is not given.
struct TargetFlags {
  std::string addr;     // --addr
  std::string context;  // --context
  tls::TlsFiles tls;    // --tls-ca and so on
};

// --addr, else that of the context (contexts.h) that --context names, else TANDEM_ADDR, else that of the
// context that TANDEM_CONTEXT names, else that of the config file's current one, else the socket of the
// `tandem up` that runs, else kDefaultAddress. TLS files, each by itself: the flag, else the variable, else
// the context's, which comes before the variable if --context names it. The current context gives TLS files
// only if it gives the address. An error is one line.
absl::StatusOr<Address> ResolveAddress(const TargetFlags& flags, const Environment& environment);

// Says in one line that nothing will answer at `address` any more, if a `tandem up` that has ended listened
// there; empty if something may answer. Asks the lock that an `up` holds.
std::string WhyNoneReturns(const Address& address, const Environment& environment);

// "unix:PATH" (absolute, at most 107 bytes) or "HOST:PORT". `where` names it in the error: "--addr".
absl::Status CheckAddress(const std::string& text, const std::string& where);

// Returns OK if a daemon could listen there, otherwise one line that says why it could not.
absl::Status CanListen(const std::string& host_and_port);

}  // namespace tandem::cli
