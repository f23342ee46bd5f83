// SPDX-License-Identifier: Apache-2.0
#include "cli/cluster/address.h"

#include <netdb.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <optional>
#include <utility>
#include <vector>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "cli/cluster/contexts.h"
#include "cli/cluster/state_folder.h"
#include "cli/terminal/display_text.h"
#include "cli/terminal/error.h"
#include "platform/net_address.h"
#include "platform/status_macros.h"

namespace tandem::cli {

absl::Status CheckAddress(const std::string& text, const std::string& where) {
  if (absl::StartsWith(text, "unix:") && !absl::StartsWith(text, "unix:/")) {
    return absl::InvalidArgumentError(absl::StrCat(
        where, ": \"", Escape(text), "\": the path of a socket starts with /, as in unix:/run/tandem"));
  }
  const std::string why = platform::WhyNotAddress(text, {.socket = true});
  return why.empty() ? absl::OkStatus() : absl::InvalidArgumentError(absl::StrCat(where, ": ", why));
}

namespace {

// The TLS files that one source gives (flags, variables, a context), and what it calls each of them.
struct TlsAnswer {
  tls::TlsFiles files;
  tls::TlsFiles sources = tls::TlsFlags();
};

// Takes each file from the first of the sources that gives it.
TlsAnswer FirstOfEach(const std::vector<TlsAnswer>& answers) {
  TlsAnswer out;
  for (const TlsAnswer& answer : answers) {
    for (std::string tls::TlsFiles::*const each : {&tls::TlsFiles::ca, &tls::TlsFiles::certificate,
                                                   &tls::TlsFiles::key, &tls::TlsFiles::server_name}) {
      if ((out.files.*each).empty()) {
        out.files.*each = answer.files.*each;
        out.sources.*each = answer.sources.*each;
      }
    }
  }
  return out;
}

TlsAnswer OfVariables(const Environment& environment) {
  return {.files = {.ca = environment.tandem_tls_ca,
                    .certificate = environment.tandem_tls_cert,
                    .key = environment.tandem_tls_key,
                    .server_name = environment.tandem_tls_server_name},
          .sources = {.ca = "TANDEM_TLS_CA", .certificate = "TANDEM_TLS_CERT", .key = "TANDEM_TLS_KEY"}};
}

// A cluster of the config file, and its name there.
struct FoundCluster {
  std::string name;  // empty: no cluster is chosen
  NamedCluster cluster;
};

TlsAnswer OfContext(const FoundCluster& found) {
  const std::string of = absl::StrCat(" of the context ", Escape(found.name));
  return {.files = found.cluster.tls,
          .sources = {.ca = "tls-ca" + of, .certificate = "tls-cert" + of, .key = "tls-key" + of}};
}

absl::StatusOr<FoundCluster> FindCluster(const TargetFlags& flags, const Environment& environment) {
  const bool by_flag = !flags.context.empty();
  const std::string named = by_flag ? flags.context : environment.tandem_context;
  const bool addressed = !flags.addr.empty() || !environment.tandem_addr.empty();
  if (named.empty() && addressed) {
    return FoundCluster{};
  }
  TANDEM_ASSIGN_OR_RETURN(const Contexts contexts, LoadContexts(environment));
  const std::string name = named.empty() ? contexts.current : named;
  if (name.empty()) {
    return FoundCluster{};
  }
  const auto found = contexts.clusters.find(name);
  if (found == contexts.clusters.end()) {
    const std::string where = by_flag ? "--context: " : "TANDEM_CONTEXT: ";
    const absl::StatusOr<std::string> file = ContextsFile(environment);
    return absl::InvalidArgumentError(
        file.ok()
            ? absl::StrCat(where, Escape(name), " is not in ", Escape(*file),
                           contexts.file.empty() ? ", which is not there; " : "; ", AllowedNames(contexts))
            : absl::StrCat(where, file.status().message()));
  }
  return FoundCluster{found->first, found->second};
}

// Where the user's `tandem up` listens; empty if none does.
std::string AddressOfUp(const Environment& environment) {
  const absl::StatusOr<std::string> root = StateRoot(environment);
  const std::optional<RunningUp> up = root.ok() ? FindRunningUp(UpFolder(*root)) : std::nullopt;
  return up.has_value() ? up->address : "";
}

absl::StatusOr<Address> FindTarget(const TargetFlags& flags, const Environment& environment,
                                   const NamedCluster& cluster) {
  if (!flags.addr.empty()) {
    TANDEM_RETURN_IF_ERROR(CheckAddress(flags.addr, "--addr"));
    return Address{flags.addr, Address::Source::kFlag};
  }
  if (!environment.tandem_addr.empty() && flags.context.empty()) {
    TANDEM_RETURN_IF_ERROR(CheckAddress(environment.tandem_addr, "TANDEM_ADDR"));
    return Address{environment.tandem_addr, Address::Source::kVariable};
  }
  if (!cluster.address.empty()) {
    return Address{cluster.address, Address::Source::kContext};
  }
  if (const std::string up = AddressOfUp(environment); !up.empty()) {
    return Address{up, Address::Source::kUp};
  }
  return Address{kDefaultAddress, Address::Source::kDefault};
}

absl::StatusOr<Address> Resolve(const TargetFlags& flags, const Environment& environment) {
  TANDEM_ASSIGN_OR_RETURN(const FoundCluster found, FindCluster(flags, environment));
  absl::StatusOr<Address> address = FindTarget(flags, environment, found.cluster);
  if (!address.ok() || absl::StartsWith(address->target, "unix:")) {
    return address;
  }
  const TlsAnswer of_flags = {.files = flags.tls};
  const TlsAnswer given = flags.context.empty()
                              ? FirstOfEach({of_flags, OfVariables(environment), OfContext(found)})
                              : FirstOfEach({of_flags, OfContext(found), OfVariables(environment)});
  if (given.files.given()) {
    TANDEM_ASSIGN_OR_RETURN(tls::TlsTexts texts, tls::ReadTlsFiles(given.files, given.sources));
    address->tls = std::make_shared<const tls::TlsTexts>(std::move(texts));
    address->files = given.files;
  }
  return address;
}

}  // namespace

absl::StatusOr<Address> ResolveAddress(const TargetFlags& flags, const Environment& environment) {
  absl::StatusOr<Address> address = Resolve(flags, environment);
  return address.ok() ? std::move(address) : Failure(kUsage, address.status().message());
}

std::string WhyNoneReturns(const Address& address, const Environment& environment) {
  return address.source != Address::Source::kUp || AddressOfUp(environment) == address.target
             ? ""
             : absl::StrCat(
                   "the `tandem up` at ", address.target,
                   " has ended, and its running jobs with it; queued ones go on with the next `tandem up`");
}

absl::Status CanListen(const std::string& host_and_port) {
  const platform::HostPort at = platform::ReadHostPort(host_and_port).value_or(platform::HostPort{});
  addrinfo hints = {};
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = AI_PASSIVE;
  addrinfo* found = nullptr;
  const int lookup = ::getaddrinfo(at.host.c_str(), std::to_string(at.port).c_str(), &hints, &found);
  if (lookup != 0) {
    return absl::InvalidArgumentError(absl::StrCat(host_and_port, ": ", ::gai_strerror(lookup)));
  }
  absl::Cleanup free = [found] { ::freeaddrinfo(found); };
  int error = 0;
  for (const addrinfo* each = found; each != nullptr && error == 0; each = each->ai_next) {
    const int fd = ::socket(each->ai_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fd < 0) {
      continue;  // a machine without IPv6
    }
    const int on = 1;  // as servers do: a port in TIME_WAIT is free
    ::setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
    error = ::bind(fd, each->ai_addr, each->ai_addrlen) == 0 && ::listen(fd, 1) == 0 ? 0 : errno;
    ::close(fd);
  }
  return error == 0 ? absl::OkStatus()
                    : absl::FailedPreconditionError(absl::StrCat(host_and_port, ": ", std::strerror(error)));
}

}  // namespace tandem::cli
