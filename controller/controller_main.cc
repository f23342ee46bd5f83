// SPDX-License-Identifier: Apache-2.0
// tandem-controller: takes jobs, places their ranks on workers, and keeps what they report.

#include <google/protobuf/stubs/logging.h>
#include <grpc/support/log.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <atomic>
#include <csignal>
#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <optional>
#include <string>
#include <system_error>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "config/flags.h"
#include "controller/daemon.h"
#include "platform/build_info.h"
#include "platform/clock.h"
#include "platform/failpoint.h"
#include "platform/log.h"
#include "platform/program_start.h"
#include "platform/rare_log.h"
#include "platform/signal_name.h"
#include "proto/reasons.h"

namespace {

using tandem::platform::Log;
using tandem::platform::LogLevel;

// Logs gRPC's own errors, but not all of them: each stranger at a port can cause some.
void LogGrpc(gpr_log_func_args* args) {
  static auto& errors = *new tandem::platform::RareLog;
  if (args->severity != GPR_LOG_SEVERITY_ERROR) {
    return;
  }
  if (const int64_t count = errors.Count(tandem::platform::SteadyClock().Now()); count > 0) {
    Log(LogLevel::kWarning, args->message, {{"from", "grpc"}, {"errors", absl::StrCat(count)}});
  }
}

int Fail(const std::string& line) {
  std::fprintf(stderr, "tandem-controller: %s\n", line.c_str());
  return 1;
}

// Accepts "30s", "500ms", "10m". A shorter time would end before a message arrives, and a time plus a longer
// one overflows.
std::string CheckDuration(const std::string& text) {
  absl::Duration duration;
  return absl::ParseDuration(text, &duration) && duration >= absl::Milliseconds(100) &&
                 duration <= absl::Hours(8760)
             ? ""
             : absl::StrCat(text, " is not a duration; allowed: 100ms to 8760h, as in 500ms, 30s or 10m");
}

// The flags of the command line, as the user wrote them.
struct Flags {
  tandem::controller::ServerOptions options;
  std::string page = "auto";
  std::string worker_timeout = "30s";
  std::string start_timeout = "15m";
  std::string orphan_timeout = "10m";
  std::string failpoints;
};

// `flags` must outlive `app`.
void AddFlags(CLI::App& app, Flags& flags) {
  tandem::controller::ServerOptions& options = flags.options;
  app.add_option("--state", options.state_directory, "State directory; created if missing")->required();
  app.add_option("--listen", options.listen, "host:port or unix:/path; may be repeated")
      ->capture_default_str()
      ->check(tandem::controller::WhyNotListen)
      ->allow_extra_args(false);
  app.add_option("--worker-listen", options.worker_listen,
                 "Like --listen, for workers alone: what users send then takes no memory that workers need")
      ->check(tandem::controller::WhyNotListen)
      ->allow_extra_args(false);
  tandem::config::AddTlsFlags(app, options.tls);
  app.add_option(
         "--tls-domain", options.tls_domain,
         "Domain of client identities: the URI spiffe://DOMAIN/user|worker|admin/NAME in a certificate")
      ->capture_default_str();
  app.add_option("--tls-revoked", options.tls.revoked,
                 "Revoked certificates, one per line: user/NAME, worker/ID, admin/NAME or a SHA-256 "
                 "fingerprint; reread when the file changes")
      ->type_name("FILE");
  app.add_option("--metrics-listen", options.metrics_listen,
                 "IPv4 host:port of metrics, the page and /healthz, or off")
      ->capture_default_str()
      ->check(tandem::controller::WhyNotMetricsListen);
  app.add_option(
         "--page", flags.page,
         "Serve the page at --metrics-listen to everyone who reaches it: on, off, or auto (only on loopback)")
      ->capture_default_str()
      ->check(CLI::IsMember({"auto", "on", "off"}));
  app.add_option("--worker-timeout", flags.worker_timeout,
                 "A job fails if one of its workers is away for longer than this")
      ->capture_default_str()
      ->check(CheckDuration);
  app.add_option(
         "--start-timeout", flags.start_timeout,
         "An attempt fails if a rank is not ready this long after placement, or after it last read from a "
         "checkpoint")
      ->capture_default_str()
      ->check(CheckDuration);
  app.add_option("--orphan-timeout", flags.orphan_timeout,
                 "Ranks exit if their worker has not heard from a controller for four fifths of this time")
      ->capture_default_str()
      ->check(CheckDuration);
#ifdef TANDEM_FAILPOINTS
  app.add_option("--failpoint", flags.failpoints, "NAME=kill or NAME=kill@N, comma-separated: die there");
#endif
  app.set_version_flag("--version", tandem::platform::BuildVersion());
}

// Returns the options that the parsed flags stand for.
absl::StatusOr<tandem::controller::ServerOptions> OptionsOf(const Flags& flags) {
  using tandem::controller::PageMode;
  tandem::controller::ServerOptions options = flags.options;
  options.page = flags.page == "on" ? PageMode::kOn : flags.page == "off" ? PageMode::kOff : PageMode::kAuto;
  absl::ParseDuration(flags.worker_timeout, &options.limits.worker_timeout);
  absl::ParseDuration(flags.start_timeout, &options.limits.start_timeout);
  absl::ParseDuration(flags.orphan_timeout, &options.orphan_timeout);
  std::error_code error;
  options.state_directory = std::filesystem::absolute(options.state_directory, error).string();
  if (error) {
    return absl::FailedPreconditionError(absl::StrCat("--state: ", error.message()));
  }
  return options;
}

// Serves until a signal ends the process or the store fails. Returns the exit code.
int Serve(const CLI::App& app, tandem::controller::ServerOptions options) {
  const sigset_t signals = tandem::platform::BlockEndSignals();
  std::signal(SIGPIPE, SIG_IGN);
  std::signal(SIGXFSZ, SIG_IGN);  // a write to a file that may not grow returns an error

  std::atomic<bool> store_failed = false;
  options.fatal = [&options, &store_failed](const absl::Status& status) {
    Log(LogLevel::kError,
        "the store failed and nothing more is decided; start the controller again when it can be written",
        {{"store", options.state_directory + "/controller.db"}, {"error", std::string(status.message())}});
    store_failed = true;
    kill(getpid(), SIGTERM);  // the ordinary end, which gives open calls a reason
  };
  // A client that sends something other than a message gets the error itself, and cannot fill the log.
  google::protobuf::SetLogHandler(nullptr);
  // If the start fails, our one line says why.
  gpr_set_log_function([](gpr_log_func_args*) {});
  // Deadlines must not come early or never when the machine's clock is set.
  auto server = tandem::controller::Daemon::Start(options, tandem::platform::SteadyClock(),
                                                  tandem::platform::SystemRandom());
  if (!server.ok()) {
    const std::string line(server.status().message());
    return absl::IsInvalidArgument(server.status()) ? tandem::config::Refuse(app, line) : Fail(line);
  }
  gpr_set_log_function(LogGrpc);
  int signal = 0;
  sigwait(&signals, &signal);
  Log(LogLevel::kInfo, "stopping",
      {{"reason",
        store_failed ? tandem::proto::ReasonCode("StoreFailed") : tandem::platform::SignalName(signal)}});
  server->reset();
  Log(LogLevel::kInfo, "stopped");
  return store_failed ? 1 : 0;
}

}  // namespace

int main(int argc, char** argv) {
  if (const absl::Status status =
          tandem::platform::OpenClosedStandardDescriptors(tandem::platform::ClosedDescriptor::kSilent);
      !status.ok()) {
    return Fail(std::string(status.message()));
  }
  Flags flags;
  CLI::App app(
      "The controller of Tandem: takes jobs, places their ranks on workers, and keeps what they report.");
  app.name("tandem-controller");
  AddFlags(app, flags);
  if (const std::optional<int> code = tandem::config::ParseFlags(app, argc, argv)) {
    return *code;
  }
  absl::StatusOr<tandem::controller::ServerOptions> options = OptionsOf(flags);
  if (!options.ok()) {
    return Fail(std::string(options.status().message()));
  }
  tandem::platform::SetLogComponent("controller");
#ifdef TANDEM_FAILPOINTS
  if (!flags.failpoints.empty()) {
    if (const absl::Status status = tandem::platform::SetFailpoints(flags.failpoints); !status.ok()) {
      return Fail(absl::StrCat("--failpoint: ", status.message()));
    }
  }
#endif
  tandem::platform::IgnoreLockCycles();
  return Serve(app, *std::move(options));
}
