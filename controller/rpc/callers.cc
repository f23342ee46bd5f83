// SPDX-License-Identifier: Apache-2.0
#include "controller/rpc/callers.h"

#include <grpc/grpc_security_constants.h>

#include <algorithm>
#include <optional>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/string_view.h"
#include "absl/strings/strip.h"
#include "controller/rpc/sign_ins.h"
#include "platform/sha256.h"
#include "platform/status_macros.h"

namespace tandem::controller {
namespace {

constexpr char kPageKey[] = "tandem-page";
constexpr char kSessionKey[] = "tandem-page-session";
constexpr char kBrowserKey[] = "tandem-page-browser";

// Returns the first value of the key; empty if there is none.
std::string Metadata(const grpc::ServerContextBase& context, const char* key) {
  const auto it = context.client_metadata().find(key);
  return it == context.client_metadata().end() ? "" : std::string(it->second.data(), it->second.size());
}

// Returns the first value of a property of the connection, such as "x509_pem_cert"; empty if there is none.
std::string Property(const grpc::AuthContext& connection, const char* name) {
  const std::vector<grpc::string_ref> values = connection.FindPropertyValues(name);
  return values.empty() ? "" : std::string(values[0].data(), values[0].size());
}

}  // namespace

Callers::Callers(platform::Random& random, const SignIns& sign_ins)
    : sign_ins_(sign_ins), page_secret_(random.HexId(32)) {}

std::string AddressOfPeer(const std::string& peer) {
  const std::string text =
      absl::StrReplaceAll(peer, {{"%5B", "["}, {"%5D", "]"}, {"%3A", ":"}, {"%25", "%"}});
  absl::string_view address = text;
  if (!absl::ConsumePrefix(&address, "ipv4:") && !absl::ConsumePrefix(&address, "ipv6:")) {
    return "unix";
  }
  // A link-local address names an interface, which is left out.
  const size_t scope = address.find('%');
  return scope == address.npos
             ? std::string(address)
             : absl::StrCat(address.substr(0, scope),
                            address.substr(std::min(address.find(']', scope), address.size())));
}

absl::StatusOr<Caller> Callers::OfConnection(const grpc::ServerContextBase& context) const {
  const std::shared_ptr<const grpc::AuthContext> connection = context.auth_context();
  const std::string kind =
      connection == nullptr ? "" : Property(*connection, GRPC_TRANSPORT_SECURITY_TYPE_PROPERTY_NAME);
  if (kind == "insecure") {
    return Caller{.identity = {tls::Role::kLocal, "local"}, .address = AddressOfPeer(context.peer())};
  }
  if (tls_ == nullptr || kind != GRPC_TLS_TRANSPORT_SECURITY_TYPE) {
    return absl::UnauthenticatedError("the connection of this call does not say who calls");
  }
  TANDEM_ASSIGN_OR_RETURN(tls::Peer peer,
                          tls_->WhoIs(Property(*connection, GRPC_X509_PEM_CERT_PROPERTY_NAME)));
  return Caller{.identity = std::move(peer.identity),
                .address = AddressOfPeer(context.peer()),
                .fingerprints = std::move(peer.fingerprints),
                .not_after = peer.not_after};
}

absl::StatusOr<Caller> Callers::Of(const grpc::ServerContextBase& context) const {
  // Compares digests, so that the time of the comparison reveals nothing about the secret.
  const std::string secret = Metadata(context, kPageKey);
  if (secret.empty() || platform::Sha256Of(secret) != platform::Sha256Of(page_secret_)) {
    return OfConnection(context);
  }
  const std::string address = absl::StrCat("page ", Metadata(context, kBrowserKey));
  const std::string session = Metadata(context, kSessionKey);
  if (session.empty()) {
    return Caller{.identity = {tls::Role::kUser, "(page)"}, .address = address, .is_page = true};
  }
  std::optional<Caller> caller = sign_ins_.Find(session);
  if (!caller.has_value()) {
    return absl::UnauthenticatedError(
        "the session of this call on the page has ended; sign in again with `tandem sign-in`");
  }
  caller->address = address;
  return *std::move(caller);
}

void Callers::MarkAsPage(const std::string& session, const std::string& browser,
                         grpc::ClientContext& context) const {
  context.AddMetadata(kPageKey, page_secret_);
  context.AddMetadata(kBrowserKey, browser);
  if (!session.empty()) {
    context.AddMetadata(kSessionKey, session);
  }
}

}  // namespace tandem::controller
