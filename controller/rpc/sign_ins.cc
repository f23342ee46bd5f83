// SPDX-License-Identifier: Apache-2.0
#include "controller/rpc/sign_ins.h"

#include <algorithm>
#include <utility>

#include "platform/sha256.h"
#include "platform/status_macros.h"

namespace tandem::controller {

void SignIns::SetPage(absl::StatusOr<std::string> page) {
  const absl::MutexLock lock(&mu_);
  page_ = std::move(page);
}

std::string SignIns::Add(const Caller& caller, bool is_code, absl::Time until) {
  const absl::Time now = clock_.Now();
  std::erase_if(entries_, [now](const auto& each) { return each.second.until <= now; });
  size_t num_own = 0;
  auto oldest = entries_.end();
  for (auto it = entries_.begin(); it != entries_.end(); ++it) {
    if (it->second.caller.identity == caller.identity) {
      ++num_own;
      if (oldest == entries_.end() || it->second.number < oldest->second.number) {
        oldest = it;
      }
    }
  }
  if (num_own >= kMostOfOne) {
    entries_.erase(oldest);
  }
  std::string secret = random_.HexId(32);
  entries_[platform::Sha256Of(secret)] =
      Entry{.caller = caller, .is_code = is_code, .until = until, .number = ++last_};
  return secret;
}

std::optional<Caller> SignIns::Take(const std::string& secret, bool is_code) {
  const auto it = entries_.find(platform::Sha256Of(secret));
  if (it == entries_.end() || it->second.is_code != is_code) {
    return std::nullopt;
  }
  const bool ended = it->second.until <= clock_.Now();
  Caller caller = std::move(it->second.caller);
  entries_.erase(it);
  return ended ? std::nullopt : std::optional<Caller>(std::move(caller));
}

absl::StatusOr<SignIns::Code> SignIns::Issue(const Caller& caller) {
  const absl::MutexLock lock(&mu_);
  TANDEM_RETURN_IF_ERROR(page_.status());
  if (revoked_.Has(caller.identity, caller.fingerprints)) {
    return absl::PermissionDeniedError("the certificate of this caller has been revoked");
  }
  return Code{.secret = Add(caller, /*is_code=*/true, clock_.Now() + kCodeLife), .page = *page_};
}

std::optional<SignIns::Session> SignIns::Redeem(const std::string& code) {
  const absl::MutexLock lock(&mu_);
  std::optional<Caller> caller = Take(code, /*is_code=*/true);
  const absl::Time now = clock_.Now();
  if (!caller.has_value() || caller->not_after <= now) {
    return std::nullopt;
  }
  const absl::Duration life = std::min(kSessionLife, caller->not_after - now);
  std::string secret = Add(*caller, /*is_code=*/false, now + life);
  return Session{.secret = std::move(secret), .caller = *std::move(caller), .life = life};
}

std::optional<Caller> SignIns::Find(const std::string& session) const {
  const absl::MutexLock lock(&mu_);
  const auto it = entries_.find(platform::Sha256Of(session));
  const bool is_there = it != entries_.end() && !it->second.is_code && it->second.until > clock_.Now();
  return is_there ? std::optional<Caller>(it->second.caller) : std::nullopt;
}

std::optional<Caller> SignIns::End(const std::string& session) {
  const absl::MutexLock lock(&mu_);
  return Take(session, /*is_code=*/false);
}

void SignIns::EndRevoked(const tls::RevokedList& revoked) {
  const absl::MutexLock lock(&mu_);
  revoked_ = revoked;
  std::erase_if(entries_, [&revoked](const auto& each) {
    return revoked.Has(each.second.caller.identity, each.second.caller.fingerprints);
  });
}

}  // namespace tandem::controller
