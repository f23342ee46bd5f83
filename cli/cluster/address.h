// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "absl/status/statusor.h"
#include "cli/terminal/environment.h"
#include "platform/local_address.h"

namespace tandem::cli {

// Where the controller listens, and who said so.
struct Address {
  enum class Source { kFlag, kVariable, kUp, kDefault };
  std::string target;  // "unix:/run/user/1000/tandem-x/controller", "127.0.0.1:7471"
  Source source = Source::kDefault;

  // The controller's machine is this one, so the paths of a job mean the same here and there.
  bool is_here() const { return platform::IsLocalAddress(target); }
};

inline constexpr char kDefaultAddress[] = "127.0.0.1:7471";

// --addr, else TANDEM_ADDR, else the socket of the `tandem up` that runs, else kDefaultAddress.
// InvalidArgument where the text is not an address: one line.
absl::StatusOr<Address> ResolveAddress(const std::string& flag, const Environment& environment);

// "unix:PATH" (absolute, at most 107 bytes) or "HOST:PORT". `where` names it in the error: "--addr".
absl::Status CheckAddress(const std::string& text, const std::string& where);

// Whether something accepts connections at "unix:PATH" now.
bool CanConnect(const std::string& address);

// Whether a daemon could listen there: OK, or one line that says why not.
absl::Status CanListen(const std::string& host_and_port);

}  // namespace tandem::cli
