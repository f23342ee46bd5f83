// SPDX-License-Identifier: Apache-2.0
#include "controller/rpc/callers.h"

#include <sys/socket.h>
#include <sys/un.h>

#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "platform/sha256.h"

namespace tandem::controller {
namespace {

constexpr char kPageKey[] = "tandem-page";
constexpr char kSessionKey[] = "tandem-page-session";
constexpr char kBrowserKey[] = "tandem-page-browser";

// The first value of the key; empty where there is none.
std::string Metadata(const grpc::ServerContextBase& context, const char* key) {
  const auto it = context.client_metadata().find(key);
  return it == context.client_metadata().end() ? "" : std::string(it->second.data(), it->second.size());
}

}  // namespace

Callers::Callers(platform::Random& random, const SignIns& sign_ins)
    : sign_ins_(sign_ins),
      prefix_(absl::StrCat("tandem-", random.HexId(16), "-")),
      page_secret_(random.HexId(32)) {}

std::string Callers::Add(int fd, Caller caller) {
  std::string name;
  {
    const absl::MutexLock lock(&mu_);
    name = absl::StrCat(prefix_, ++last_);
    ++nums_[tls::ToText(caller.identity)];
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
  const auto it = callers_.find(name);
  if (it == callers_.end()) {
    return;
  }
  const auto num = nums_.find(tls::ToText(it->second.identity));
  if (--num->second == 0) {
    nums_.erase(num);
  }
  callers_.erase(it);
}

size_t Callers::NumOf(const tls::Identity& identity) const {
  const absl::MutexLock lock(&mu_);
  const auto it = nums_.find(tls::ToText(identity));
  return it == nums_.end() ? 0 : it->second;
}

std::optional<Caller> Callers::Of(const grpc::ServerContextBase& context) const {
  // By digest, so that the time of the comparison says nothing about the secret.
  const std::string secret = Metadata(context, kPageKey);
  if (secret.empty() || platform::Sha256Of(secret) != platform::Sha256Of(page_secret_)) {
    return Find(context.peer());
  }
  const std::string address = absl::StrCat("page ", Metadata(context, kBrowserKey));
  const std::string session = Metadata(context, kSessionKey);
  if (session.empty()) {
    return Caller{.identity = {tls::Role::kUser, "(page)"}, .address = address, .is_page = true};
  }
  std::optional<Caller> caller = sign_ins_.Find(session);
  if (caller.has_value()) {
    caller->address = address;
  }
  return caller;
}

void Callers::MarkAsPage(const std::string& session, const std::string& browser,
                         grpc::ClientContext& context) const {
  context.AddMetadata(kPageKey, page_secret_);
  context.AddMetadata(kBrowserKey, browser);
  if (!session.empty()) {
    context.AddMetadata(kSessionKey, session);
  }
}

std::optional<Caller> Callers::Find(const std::string& peer) const {
  absl::string_view name = peer;
  absl::ConsumePrefix(&name, "unix-abstract:");
  const absl::MutexLock lock(&mu_);
  const auto it = callers_.find(std::string(name));
  return it == callers_.end() ? std::nullopt : std::optional<Caller>(it->second);
}

}  // namespace tandem::controller
