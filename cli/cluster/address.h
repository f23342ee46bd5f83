// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "cli/terminal/environment.h"
#include "platform/host.h"
#include "tls/tls_files.h"

namespace tandem::cli {

// The address of the controller, where the address was found, and the TLS credentials of this client.
struct Address {
  enum class Source { kFlag, kVariable, kContext, kUp, kDefault };
  std::string target;  // "unix:/run/user/1000/tandem-x/controller", "127.0.0.1:7471"
  Source source = Source::kDefault;
  std::shared_ptr<const tls::TlsTexts> tls = nullptr;  // null: no TLS, as on unix sockets
  tls::TlsFiles files = {};                            // the files that `tls` was read from

  // Whether the controller runs on this machine and so sees the same files. False if files.server_name is
  // set: a local address is then the end of a tunnel, for example of `kubectl port-forward`.
  bool is_here() const { return platform::IsLocalAddress(target) && files.server_name.empty(); }
};

inline constexpr char kDefaultAddress[] = "127.0.0.1:7471";

// The flags that select a controller; empty if not given.
struct TargetFlags {
  std::string addr;     // --addr
  std::string context;  // --context
  tls::TlsFiles tls;    // --tls-ca and so on
};

// Finds the address of the controller. The first of these that is given decides:
//   1. --addr
//   2. the context (contexts.h) that --context names
//   3. TANDEM_ADDR
//   4. the context that TANDEM_CONTEXT names
//   5. the current context of the config file
//   6. the socket of the running `tandem up`
//   7. kDefaultAddress
// Each TLS file is found separately: the flag, else the variable, else the context's; but a context that
// --context names comes before the variable. The TLS files of the current context are used only with its
// address. Errors are Failures (terminal/error.h).
absl::StatusOr<Address> ResolveAddress(const TargetFlags& flags, const Environment& environment);

// If `address` was that of a `tandem up` that has ended, so that nothing will answer there any more, returns
// one line that says so. Otherwise returns an empty string.
std::string WhyNoneReturns(const Address& address, const Environment& environment);

// Returns OK if `text` is "unix:PATH", with an absolute PATH of at most 107 bytes, or "HOST:PORT". Errors
// begin with `where`: "--addr".
absl::Status CheckAddress(const std::string& text, const std::string& where);

// Returns OK if a daemon could listen at `host_and_port` now; otherwise the error says in one line why not.
absl::Status CanListen(const std::string& host_and_port);

}  // namespace tandem::cli
