// SPDX-License-Identifier: Apache-2.0
#include "tls/identity.h"

#include <algorithm>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"

namespace tandem::tls {
namespace {

constexpr size_t kLongestName = 64;
constexpr size_t kLongestDomain = 253;

absl::string_view Text(std::string_view text) { return {text.data(), text.size()}; }

constexpr const char* kRoleTexts[] = {"user", "worker", "admin", "local"};  // by Role

}  // namespace

std::optional<Identity> ParseIdentity(std::string_view text) {
  for (const Role role : {Role::kUser, Role::kWorker, Role::kAdmin}) {
    const std::string_view word = kRoleTexts[static_cast<size_t>(role)];
    if (text.starts_with(word) && text.size() > word.size() && text[word.size()] == '/') {
      const std::string_view name = text.substr(word.size() + 1);
      if (IsGoodName(role, name)) {
        return Identity{role, std::string(name)};
      }
    }
  }
  return std::nullopt;
}

std::string ToText(const Identity& identity) {
  const char* const role = kRoleTexts[static_cast<size_t>(identity.role)];
  return identity.role == Role::kLocal ? role : absl::StrCat(role, "/", identity.name);
}

bool IsGoodDomain(std::string_view domain) {
  return !domain.empty() && domain.size() <= kLongestDomain &&
         std::all_of(domain.begin(), domain.end(), [](unsigned char c) {
           return absl::ascii_isalnum(c) || c == '.' || c == '_' || c == '-';
         });
}

bool IsGoodName(Role role, std::string_view name) {
  if (role == Role::kWorker && name.ends_with('*')) {
    name.remove_suffix(1);
    if (name.empty()) {
      return true;
    }
  }
  return !name.empty() && name.size() <= kLongestName &&
         std::all_of(name.begin(), name.end(), [](unsigned char c) {
           return absl::ascii_isalnum(c) || c == '.' || c == '_' || c == '@' || c == '-';
         });
}

std::string UriOf(const Identity& identity, std::string_view domain) {
  return absl::StrCat("spiffe://", Text(domain), "/", ToText(identity));
}

absl::StatusOr<Identity> IdentityOf(const std::vector<std::string>& uris, std::string_view domain) {
  const std::string prefix = absl::StrCat("spiffe://", Text(domain), "/");
  const std::string expected =
      absl::StrCat("it must have exactly one URI ", prefix, "user/NAME, ", prefix, "worker/ID or ", prefix,
                   "admin/NAME among its alternative names");
  std::vector<std::string_view> ours;
  for (const std::string& uri : uris) {
    if (uri.starts_with(prefix)) {
      ours.push_back(std::string_view(uri).substr(prefix.size()));
    }
  }
  if (ours.empty()) {
    return absl::UnauthenticatedError(
        absl::StrCat("the certificate has no identity in this cluster; ", expected));
  }
  const std::optional<Identity> identity = ParseIdentity(ours[0]);
  if (ours.size() > 1 || !identity.has_value()) {
    return absl::UnauthenticatedError(absl::StrCat(
        "the certificate names ", ours.size() > 1 ? "several at once" : "no valid identity", "; ", expected));
  }
  return *identity;
}

bool MayBeWorker(const Identity& identity, std::string_view id) {
  if (identity.role == Role::kLocal) {
    return true;
  }
  if (identity.role != Role::kWorker) {
    return false;
  }
  const std::string_view name = identity.name;
  return name.ends_with('*') ? id.starts_with(name.substr(0, name.size() - 1)) : id == name;
}

}  // namespace tandem::tls
