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

// The identity at the other end of a connection.
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

// Reads "user/alice"; nullopt if it has another form, or names an identity without certificates.
std::optional<Identity> ParseIdentity(std::string_view text);

// Finds the one of a certificate's URIs that names an identity of `domain`; ignores the others.
// Unauthenticated if there is none, if there are two, or if it has another form than that above: the sentence
// says what was found and what is expected.
absl::StatusOr<Identity> IdentityOf(const std::vector<std::string>& uris, std::string_view domain);

// Whether an identity may be the worker `id`: a worker of that name, a pool that includes it, or kLocal.
bool MayBeWorker(const Identity& identity, std::string_view id);

}  // namespace tandem::tls
