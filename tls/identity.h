// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"

namespace tandem::tls {

// What a caller may be. kLocal: every process that may open the controller's unix socket, or, without TLS,
// its loopback port; no certificate gives it.
enum class Role { kUser, kWorker, kAdmin, kLocal };

// Who is at the other end of a connection.
struct Identity {
  Role role = Role::kUser;
  std::string name;
  bool operator==(const Identity&) const = default;
};

// "user/alice"; the text of a kLocal is "local".
std::string ToText(const Identity& identity);

inline constexpr char kDefaultDomain[] = "tandem.local";

// 1 to 253 letters, digits and any of . _ -
bool IsGoodDomain(std::string_view domain);

// 1 to 64 letters, digits and any of . _ @ -; that of a worker may end in *, and then stands for a pool.
bool IsGoodName(Role role, std::string_view name);

// "spiffe://tandem.local/user/alice".
std::string UriOf(const Identity& identity, std::string_view domain);

// Of "user/alice"; nullopt: it is not of that form, or names nobody who has a certificate.
std::optional<Identity> ParseIdentity(std::string_view text);

// The one of a certificate's URIs that names somebody of `domain`; others are not looked at. Unauthenticated
// where there is none, two, or one that is not of the form above: the sentence says what is there and what
// is expected.
absl::StatusOr<Identity> IdentityOf(const std::vector<std::string>& uris, std::string_view domain);

// Whether this one may be the worker `id`: a worker of that name or of a pool that has it, or kLocal.
bool MayBeWorker(const Identity& identity, std::string_view id);

}  // namespace tandem::tls
