// SPDX-License-Identifier: Apache-2.0
#include "tls/revoked_list.h"

#include <algorithm>
#include <iterator>
#include <optional>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"

namespace tandem::tls {
namespace {

constexpr size_t kDigits = 64;  // of SHA-256

// Returns a fingerprint in lower case and without colons; nullopt if the line is not one.
std::optional<std::string> ParseFingerprint(absl::string_view line) {
  const size_t equals = line.find('=');
  if (equals != absl::string_view::npos &&
      absl::EqualsIgnoreCase(line.substr(0, equals), "sha256 Fingerprint")) {
    line.remove_prefix(equals + 1);
  }
  std::string out = absl::StrReplaceAll(line, {{":", ""}});
  absl::AsciiStrToLower(&out);
  const bool good = out.size() == kDigits && std::all_of(out.begin(), out.end(), [](unsigned char c) {
                      return absl::ascii_isxdigit(c);
                    });
  return good ? std::optional(out) : std::nullopt;
}

}  // namespace

absl::StatusOr<RevokedList> RevokedList::Parse(std::string_view text, const std::string& file) {
  RevokedList out;
  int number = 0;
  for (absl::string_view line : absl::StrSplit(absl::string_view(text.data(), text.size()), '\n')) {
    ++number;
    line = absl::StripAsciiWhitespace(line.substr(0, line.find('#')));
    if (line.empty()) {
      continue;
    }
    if (const std::optional<Identity> identity = ParseIdentity({line.data(), line.size()})) {
      out.identities_.insert(ToText(*identity));
    } else if (const std::optional<std::string> fingerprint = ParseFingerprint(line)) {
      out.fingerprints_.insert(*fingerprint);
    } else {
      return absl::InvalidArgumentError(absl::StrCat(
          file, ":", number,
          ": it is neither user/NAME, worker/ID or admin/NAME nor the SHA-256 fingerprint of a "
          "certificate (64 hex digits, as `openssl x509 -noout -fingerprint -sha256` prints it)"));
    }
  }
  return out;
}

bool RevokedList::Has(const Identity& identity, const Fingerprints& fingerprints) const {
  const auto is_listed = [this](const std::string& each) { return fingerprints_.contains(each); };
  return identities_.contains(ToText(identity)) ||
         (fingerprints != nullptr && std::any_of(fingerprints->begin(), fingerprints->end(), is_listed));
}

std::vector<std::string> RevokedList::NotIn(const RevokedList& other) const {
  std::vector<std::string> out;
  std::set_difference(identities_.begin(), identities_.end(), other.identities_.begin(),
                      other.identities_.end(), std::back_inserter(out));
  std::set_difference(fingerprints_.begin(), fingerprints_.end(), other.fingerprints_.begin(),
                      other.fingerprints_.end(), std::back_inserter(out));
  return out;
}

}  // namespace tandem::tls
