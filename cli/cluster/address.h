// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "cli/terminal/environment.h"
#include "platform/host.h"
#include "tls/tls_files.h"

namespace tandem::cli {

// Where the controller listens, who said so, and what it is shown.
struct Address {
  enum class Source { kFlag, kVariable, kContext, kUp, kDefault };
  std::string target;  // "unix:/run/user/1000/tandem-x/controller", "127.0.0.1:7471"
  Source source = Source::kDefault;
  std::shared_ptr<const tls::TlsTexts> tls = nullptr;  // null: none, as on unix sockets
  tls::TlsFiles files = {};                            // where `tls` is from

  // The controller's machine is this one, so the paths of a job mean the same here and there. Where the
  // server is asked for by a name of its own, an address of this machine is that of a tunnel, as of `kubectl
  // port-forward`.
  bool is_here() const { return platform::IsLocalAddress(target) && files.server_name.empty(); }
};

inline constexpr char kDefaultAddress[] = "127.0.0.1:7471";

// What the command line says of the controller; empty: nothing.
struct TargetFlags {
  std::string addr;     // --addr
  std::string context;  // --context
  tls::TlsFiles tls;    // --tls-ca and so on
};

// --addr, else that of the context (contexts.h) that --context names, else TANDEM_ADDR, else that of the
// context that TANDEM_CONTEXT names, else that of the config file's current one, else the socket of the
// `tandem up` that runs, else kDefaultAddress. TLS files, each by itself: the flag, else the variable, else
// the context's, which comes before the variable where --context names it. The current context is not asked
// where the address is not from it. One line where something is wrong.
absl::StatusOr<Address> ResolveAddress(const TargetFlags& flags, const Environment& environment);

// Where `address` is that of a `tandem up` that has ended: that nothing will answer there any more, in a
// line. Empty where something may. Asks the lock that an `up` holds.
std::string WhyNoneReturns(const Address& address, const Environment& environment);

// "unix:PATH" (absolute, at most 107 bytes) or "HOST:PORT". `where` names it in the error: "--addr".
absl::Status CheckAddress(const std::string& text, const std::string& where);

// Whether a daemon could listen there: OK, or one line that says why not.
absl::Status CanListen(const std::string& host_and_port);

}  // namespace tandem::cli
