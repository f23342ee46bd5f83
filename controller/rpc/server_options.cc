// SPDX-License-Identifier: Apache-2.0
#include "controller/rpc/server_options.h"

#include "absl/strings/str_cat.h"
#include "platform/host.h"
#include "platform/net_address.h"
#include "platform/status_macros.h"

namespace tandem::controller {

std::string WhyNotListen(const std::string& address) {
  return platform::WhyNotAddress(address, {.socket = true, .every_host = true, .least_port = 0});
}

std::string WhyNotMetricsListen(const std::string& address) {
  return platform::WhyNotAddress(
      address, {.every_host = true, .least_port = 0, .word = "off", .example = "127.0.0.1:9464"});
}

namespace {

absl::Status CheckListen(const std::vector<std::string>& addresses, const char* flag, bool has_tls) {
  for (const std::string& address : addresses) {
    if (const std::string why = WhyNotListen(address); !why.empty()) {
      return absl::InvalidArgumentError(absl::StrCat(flag, ": ", why));
    }
    if (!has_tls && !platform::IsLocalAddress(address)) {
      return absl::InvalidArgumentError(absl::StrCat(
          flag, " ", address,
          ": without TLS only this machine may reach the controller, as at "
          "127.0.0.1:7471 or unix:/path; give --tls-ca, --tls-cert and --tls-key (`tandem certs init` "
          "makes them) to listen there"));
    }
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status CheckOptions(const ServerOptions& options) {
  TANDEM_RETURN_IF_ERROR(CheckListen(options.listen, "--listen", options.tls.given()));
  TANDEM_RETURN_IF_ERROR(CheckListen(options.worker_listen, "--worker-listen", options.tls.given()));
  if (const std::string why = WhyNotMetricsListen(options.metrics_listen); !why.empty()) {
    return absl::InvalidArgumentError(absl::StrCat("--metrics-listen: ", why));
  }
  if (options.metrics_listen == "off" && options.page == PageMode::kOn) {
    return absl::InvalidArgumentError(
        "--page on: with --metrics-listen off there is no address to serve it at; give one, or omit --page");
  }
  if (!tls::IsGoodDomain(options.tls_domain)) {
    return absl::InvalidArgumentError(
        absl::StrCat("--tls-domain: \"", options.tls_domain,
                     "\" is not a DNS name; allowed: letters, digits, '.', '-' and '_', as in "
                     "cluster.example; without the flag it is ",
                     tls::kDefaultDomain));
  }
  if (options.tls.given()) {
    return tls::CheckNamed(options.tls);
  }
  return options.tls.revoked.empty()
             ? absl::OkStatus()
             : absl::InvalidArgumentError(
                   "--tls-revoked: without TLS nobody shows a certificate; give --tls-ca, "
                   "--tls-cert and --tls-key too");
}

}  // namespace tandem::controller
