// SPDX-License-Identifier: Apache-2.0
#include "cli/terminal/error.h"

#include "absl/strings/cord.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "cli/terminal/display_text.h"
#include "tls/tls_files.h"

namespace tandem::cli {
namespace {

constexpr char kExitCode[] = "tandem.cli/exit-code";  // the payload of a Failure

// Returns the last part of a message, which is the operating system's. gRPC puts others before it: "failed to
// connect to all addresses; last error: UNKNOWN: ipv4:127.0.0.1:7471: Failed to connect to remote host:
// Connection refused".
std::string LastLayer(absl::string_view message) {
  const size_t colon = message.rfind(": ");
  return Escape(colon == absl::string_view::npos ? message : message.substr(colon + 2));
}

std::string WhatToStart(const Address& address) {
  switch (address.source) {
    case Address::Source::kFlag:
      return "check --addr, or that the controller runs there";
    case Address::Source::kVariable:
      return "check TANDEM_ADDR, or that the controller runs there";
    case Address::Source::kContext:
      return "check the context's address, or that the controller runs there";
    case Address::Source::kUp:
      return "the `tandem up` that listens there is starting or ending; try again";
    case Address::Source::kDefault:
      return "start one with `tandem up`, or name another with --addr or TANDEM_ADDR";
  }
  return "";
}

// What to do if the TLS handshake failed, recognized by gRPC's words for it; empty: something else failed.
std::string TlsHint(absl::string_view message, const Address& address) {
  if (absl::StrContains(message, "certificate verify failed")) {
    return absl::StrCat(
        "its certificate is not signed by what ", Escape(address.files.ca),
        " holds, or is not valid now; use the ca.crt of that cluster, or renew the controller's certificate");
  }
  if (absl::StrContains(message, "is not in peer certificate")) {
    return absl::StrCat(
        "its certificate is for other names; use one of them as the address, or give one with "
        "--tls-server-name");
  }
  if (absl::StrContains(message, "wrong version number")) {
    return "it does not use TLS; omit --tls-ca, --tls-cert and --tls-key if it is the intended controller";
  }
  return "";
}

// Guesses why the controller closed the connection before it answered anything, since it does not say why;
// empty if it did not close it.
std::string ClosedHint(absl::string_view message, const Address& address) {
  const std::string end = LastLayer(message);
  if (!absl::StrContains(message, "failed to connect") || absl::StartsWith(address.target, "unix:") ||
      (end != "Socket closed" && end != "Connection reset by peer" && end != "Broken pipe")) {
    return "";
  }
  if (address.tls == nullptr) {
    return "it closes the connection; if it speaks TLS, give --tls-ca, --tls-cert and --tls-key";
  }
  const std::string file = Escape(address.files.certificate);
  if (const std::string why = tls::WhyNotValid(address.tls->own, absl::Now()); !why.empty()) {
    return absl::StrCat("it closes the connection, and the certificate ", file, " ", why,
                        "; renew it with `tandem certs issue --renew`, or ask your operator");
  }
  return absl::StrCat(
      "it closes the connection: it may not accept the certificate ", file,
      " (`tandem certs show`), which may be revoked, of another authority, or a worker's, and workers "
      "may have a port of their own; or it has too many connections; its log says which");
}

}  // namespace

absl::Status Failure(ExitCode code, absl::string_view text) {
  absl::Status out(absl::StatusCode::kAborted, text);
  out.SetPayload(kExitCode, absl::Cord(absl::StrCat(static_cast<int>(code))));
  return out;
}

absl::Status CallFailure(const absl::Status& status, absl::string_view what, const Address& address) {
  if (status.GetPayload(kExitCode).has_value()) {
    return status;
  }
  const std::string before = what.empty() ? "" : absl::StrCat(what, ": ");
  const std::string message = Escape(status.message());
  const std::string& at = address.target;
  switch (status.code()) {
    case absl::StatusCode::kUnavailable:
      if (const std::string hint = TlsHint(status.message(), address); !hint.empty()) {
        return Failure(kDenied, absl::StrCat(before, "the controller at ", at, " is not trusted: ", hint));
      }
      if (const std::string hint = ClosedHint(status.message(), address); !hint.empty()) {
        return Failure(kDenied, absl::StrCat(before, "the controller at ", at, " refuses: ", hint));
      }
      return Failure(kUnreachable, absl::StrCat(before, "no controller answers at ", at, " (",
                                                LastLayer(status.message()), "); ", WhatToStart(address)));
    case absl::StatusCode::kDeadlineExceeded:
      return Failure(
          kTimeout,
          absl::StrCat(before, "the controller at ", at,
                       " did not answer in time; it may be overloaded or stopped: look at its log"));
    case absl::StatusCode::kNotFound:
      return Failure(kNotFound, absl::StrCat(before, message, " (controller at ", at, ")"));
    case absl::StatusCode::kUnauthenticated:
    case absl::StatusCode::kPermissionDenied:
      return Failure(kDenied, absl::StrCat(before, "the controller at ", at, " refuses: ", message));
    case absl::StatusCode::kUnimplemented:
      return Failure(kFailed,
                     absl::StrCat(before, "the controller at ", at,
                                  " does not understand the call; compare the builds with `tandem version`"));
    default:
      return Failure(kFailed,
                     absl::StrCat(before, message.empty() ? absl::StatusCodeToString(status.code()) : message,
                                  " (controller at ", at, ")"));
  }
}

int Fail(Console& console, const absl::Status& status, absl::string_view what) {
  int code = absl::IsInvalidArgument(status) ? kUsage : kFailed;
  if (const absl::optional<absl::Cord> of_failure = status.GetPayload(kExitCode); of_failure.has_value()) {
    static_cast<void>(absl::SimpleAtoi(std::string(*of_failure), &code));
    if (!status.message().empty()) {
      Note(console, status.message());
    }
  } else {
    Note(console, absl::StrCat(what, ": ", status.message()));
  }
  return code;
}

void Note(Console& console, absl::string_view text) {
  console.Write(Stream::kErr, absl::StrCat("tandem: ", text, "\n"));
}

}  // namespace tandem::cli
