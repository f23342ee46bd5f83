// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"

namespace tandem::tls {

// The role of a caller. kLocal is the role of every process that can open the controller's unix socket or,
// without TLS, its loopback port; no certificate has it.
enum class Role { kUser, kWorker, kAdmin, kLocal };

// The identity at the other end of a connection.
struct Identity {
  Role role = Role::kUser;
  std::string name;
  bool operator==(const Identity&) const = default;
};

// "user/alice"; for kLocal "local".
std::string ToText(const Identity& identity);

inline constexpr char kDefaultDomain[] = "tandem.local";

// 1 to 253 letters, digits and any of . _ -
bool IsGoodDomain(std::string_view domain);

// 1 to 64 letters, digits and any of . _ @ -; a worker's name may end in *, which makes it a pool of workers.
bool IsGoodName(Role role, std::string_view name);

// "spiffe://tandem.local/user/alice".
std::string UriOf(const Identity& identity, std::string_view domain);

// Parses "user/alice"; nullopt if `text` has another form or is a kLocal.
std::optional<Identity> ParseIdentity(std::string_view text);

// Returns the identity of a certificate with these URIs. Exactly one URI must belong to `domain`, in the form
// of UriOf; URIs of other domains are ignored. Otherwise returns Unauthenticated, with a sentence that says
// what was found and what is expected.
absl::StatusOr<Identity> IdentityOf(const std::vector<std::string>& uris, std::string_view domain);

// Whether a caller with this identity may be the worker `id`: true for a worker of that name, a pool that
// includes it, and kLocal.
bool MayBeWorker(const Identity& identity, std::string_view id);

}  // namespace tandem::tls
