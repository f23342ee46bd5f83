// SPDX-License-Identifier: Apache-2.0
#include "controller/rpc/callers.h"

#include <sys/socket.h>
#include <sys/un.h>

#include <cstddef>
#include <cstring>
#include <string_view>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"

namespace tandem::controller {
namespace {

constexpr char kPageKey[] = "tandem-page";

}  // namespace

Callers::Callers(platform::Random& random)
    : prefix_(absl::StrCat("tandem-", random.HexId(16), "-")), page_secret_(random.HexId(32)) {}

std::string Callers::Add(int fd, Caller caller) {
  std::string name;
  {
    const absl::MutexLock lock(&mu_);
    name = absl::StrCat(prefix_, ++last_);
    callers_[name] = std::move(caller);
  }
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  std::memcpy(address.sun_path + 1, name.data(), name.size());  // behind a zero: abstract
  const auto length = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + name.size());
  if (bind(fd, reinterpret_cast<const sockaddr*>(&address), length) != 0) {
    Remove(name);
    return "";
  }
  return name;
}

void Callers::Remove(const std::string& name) {
  const absl::MutexLock lock(&mu_);
  callers_.erase(name);
}

std::optional<Caller> Callers::Of(const grpc::ServerContextBase& context) const {
  const auto secret = context.client_metadata().find(kPageKey);
  if (secret != context.client_metadata().end() &&
      std::string_view(secret->second.data(), secret->second.size()) == page_secret_) {
    return Caller{.identity = {tls::Role::kUser, "(page)"}, .address = "page", .is_page = true};
  }
  return Find(context.peer());
}

void Callers::MarkAsPage(grpc::ClientContext& context) const { context.AddMetadata(kPageKey, page_secret_); }

std::optional<Caller> Callers::Find(const std::string& peer) const {
  absl::string_view name = peer;
  absl::ConsumePrefix(&name, "unix-abstract:");
  const absl::MutexLock lock(&mu_);
  const auto it = callers_.find(std::string(name));
  return it == callers_.end() ? std::nullopt : std::optional<Caller>(it->second);
}

}  // namespace tandem::controller
