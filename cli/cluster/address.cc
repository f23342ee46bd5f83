// SPDX-License-Identifier: Apache-2.0
#include "cli/cluster/address.h"

#include <netdb.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <optional>
#include <utility>
#include <vector>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "absl/strings/strip.h"
#include "cli/cluster/contexts.h"
#include "cli/cluster/state_folder.h"
#include "cli/terminal/display_text.h"
#include "config/address.h"
#include "platform/status_macros.h"

namespace tandem::cli {

absl::Status CheckAddress(const std::string& text, const std::string& where) {
  absl::string_view path = text;
  if (absl::ConsumePrefix(&path, "unix:")) {
    if (!absl::StartsWith(path, "/")) {
      return absl::InvalidArgumentError(absl::StrCat(
          where, ": \"", Escape(text), "\": the path of a socket starts with /, as in unix:/run/tandem"));
    }
  }
  const std::string why = config::WhyNotAddress(text, {.socket = true});
  return why.empty() ? absl::OkStatus() : absl::InvalidArgumentError(absl::StrCat(where, ": ", why));
}

namespace {

const std::string& FirstOf(const std::string& a, const std::string& b, const std::string& c) {
  return !a.empty() ? a : !b.empty() ? b : c;
}

// The context that is meant; none: an empty one.
absl::StatusOr<NamedCluster> FindCluster(const TargetFlags& flags, const Environment& environment) {
  const bool by_flag = !flags.context.empty();
  const std::string named = by_flag ? flags.context : environment.tandem_context;
  const bool addressed = !flags.addr.empty() || !environment.tandem_addr.empty();
  if (named.empty() && addressed) {
    return NamedCluster{};
  }
  TANDEM_ASSIGN_OR_RETURN(const Contexts contexts, LoadContexts(environment));
  const std::string name = named.empty() ? contexts.current : named;
  if (name.empty()) {
    return NamedCluster{};
  }
  const auto found = contexts.clusters.find(name);
  if (found == contexts.clusters.end()) {
    return absl::InvalidArgumentError(absl::StrCat(
        by_flag ? "--context: " : "TANDEM_CONTEXT: ", Escape(name), " is not in ",
        contexts.file.empty() ? "~/.config/tandem/config.yaml, which is not there" : contexts.file, "; ",
        AllowedNames(contexts)));
  }
  return found->second;
}

absl::StatusOr<Address> FindTarget(const TargetFlags& flags, const Environment& environment,
                                   const NamedCluster& cluster) {
  if (!flags.addr.empty()) {
    const absl::Status status = CheckAddress(flags.addr, "--addr");
    return status.ok() ? absl::StatusOr<Address>(Address{flags.addr, Address::Source::kFlag}) : status;
  }
  if (!environment.tandem_addr.empty() && flags.context.empty()) {
    const absl::Status status = CheckAddress(environment.tandem_addr, "TANDEM_ADDR");
    return status.ok() ? absl::StatusOr<Address>(Address{environment.tandem_addr, Address::Source::kVariable})
                       : status;
  }
  if (!cluster.address.empty()) {
    return Address{cluster.address, Address::Source::kContext};
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

}  // namespace

absl::StatusOr<Address> ResolveAddress(const TargetFlags& flags, const Environment& environment) {
  TANDEM_ASSIGN_OR_RETURN(const NamedCluster cluster, FindCluster(flags, environment));
  absl::StatusOr<Address> address = FindTarget(flags, environment, cluster);
  if (!address.ok() || absl::StartsWith(address->target, "unix:")) {
    return address;
  }
  const tls::TlsFiles variables = {.ca = environment.tandem_tls_ca,
                                   .certificate = environment.tandem_tls_cert,
                                   .key = environment.tandem_tls_key,
                                   .server_name = environment.tandem_tls_server_name};
  const bool by_flag = !flags.context.empty();
  const tls::TlsFiles& second = by_flag ? cluster.tls : variables;
  const tls::TlsFiles& last = by_flag ? variables : cluster.tls;
  const tls::TlsFiles files = {
      .ca = FirstOf(flags.tls.ca, second.ca, last.ca),
      .certificate = FirstOf(flags.tls.certificate, second.certificate, last.certificate),
      .key = FirstOf(flags.tls.key, second.key, last.key),
      .server_name = FirstOf(flags.tls.server_name, second.server_name, last.server_name)};
  if (files.given()) {
    TANDEM_ASSIGN_OR_RETURN(tls::TlsTexts texts, tls::ReadTlsFiles(files));
    address->tls = std::make_shared<const tls::TlsTexts>(std::move(texts));
    address->files = files;
  }
  return address;
}

bool CanConnect(const std::string& address) {
  const std::string path = address.substr(std::string("unix:").size());
  sockaddr_un name = {};
  name.sun_family = AF_UNIX;
  if (path.size() >= sizeof(name.sun_path)) {
    return false;
  }
  std::memcpy(name.sun_path, path.data(), path.size());
  const int fd = ::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
  const bool connected = ::connect(fd, reinterpret_cast<const sockaddr*>(&name), sizeof(name)) == 0;
  ::close(fd);
  return connected;
}

absl::Status CanListen(const std::string& host_and_port) {
  const size_t colon = host_and_port.rfind(':');
  std::string host = host_and_port.substr(0, colon);
  if (host.size() > 2 && host.front() == '[' && host.back() == ']') {
    host = host.substr(1, host.size() - 2);
  }
  addrinfo hints = {};
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = AI_PASSIVE;
  addrinfo* found = nullptr;
  const int lookup = ::getaddrinfo(host.c_str(), host_and_port.substr(colon + 1).c_str(), &hints, &found);
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
