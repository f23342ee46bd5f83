#include "cli/cluster/address.h"

#include <optional>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "absl/strings/strip.h"
#include "cli/cluster/state_folder.h"
#include "cli/terminal/display_text.h"

namespace tandem::cli {

bool Address::is_here() const {
  return absl::StartsWith(target, "unix:") || absl::StartsWith(target, "127.") ||
         absl::StartsWith(target, "localhost:") || absl::StartsWith(target, "[::1]:");
}

absl::Status CheckAddress(const std::string& text, const std::string& where) {
  absl::string_view path = text;
  if (absl::ConsumePrefix(&path, "unix:")) {
    if (!absl::StartsWith(path, "/")) {
      return absl::InvalidArgumentError(absl::StrCat(
          where, ": \"", Escape(text), "\": the path of a socket starts with /, as in unix:/run/tandem"));
    }
    if (path.size() > kMaxSocketPath) {
      return absl::InvalidArgumentError(absl::StrCat(where, ": the socket path has ", path.size(),
                                                     " bytes, the system allows ", kMaxSocketPath, ": ",
                                                     Escape(path), "; choose a shorter folder"));
    }
    return absl::OkStatus();
  }
  const size_t colon = text.rfind(':');
  int port = 0;
  if (colon == std::string::npos || colon == 0 || !absl::SimpleAtoi(text.substr(colon + 1), &port) ||
      port < 1 || port > 65535 || text.find_first_of(" \t\n/") != std::string::npos) {
    return absl::InvalidArgumentError(
        absl::StrCat(where, ": \"", Escape(text),
                     "\" is not an address; allowed: unix:/PATH or HOST:PORT with a port "
                     "from 1 to 65535, as in 127.0.0.1:7471"));
  }
  return absl::OkStatus();
}

absl::StatusOr<Address> ResolveAddress(const std::string& flag, const Environment& environment) {
  if (!flag.empty()) {
    const absl::Status status = CheckAddress(flag, "--addr");
    return status.ok() ? absl::StatusOr<Address>(Address{flag, Address::Source::kFlag}) : status;
  }
  if (!environment.tandem_addr.empty()) {
    const absl::Status status = CheckAddress(environment.tandem_addr, "TANDEM_ADDR");
    return status.ok() ? absl::StatusOr<Address>(Address{environment.tandem_addr, Address::Source::kVariable})
                       : status;
  }
  const absl::StatusOr<std::string> root = StateRoot(environment);
  if (root.ok()) {
    const std::optional<RunningUp> up = FindRunningUp(UpFolder(*root));
    if (up.has_value() && !up->address.empty()) {
      return Address{up->address, Address::Source::kUp};
    }
  }
  return Address{kDefaultAddress, Address::Source::kDefault};
}

}  // namespace tandem::cli
