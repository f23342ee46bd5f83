// SPDX-License-Identifier: Apache-2.0
#include "cli/cluster/local_cluster.h"

#include <algorithm>
#include <csignal>
#include <filesystem>
#include <system_error>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "absl/time/clock.h"
#include "cli/terminal/display_text.h"
#include "platform/clock.h"
#include "platform/counted_text.h"
#include "platform/status_macros.h"
#include "platform/system_error.h"
#include "platform/unix_socket.h"

namespace tandem::cli {
namespace {

constexpr absl::Duration kStartTimeout = absl::Seconds(15);
constexpr absl::Duration kPoll = absl::Milliseconds(20);
constexpr int kLogLines = 10;

// "; the end of LOG:" and its last lines; or, if there are none, why, as far as that is known.
std::string LogText(const DaemonProcess& daemon) {
  const std::string& log = daemon.command().log;
  std::string tail = daemon.LogTail(kLogLines);
  absl::StripTrailingAsciiWhitespace(&tail);
  if (!tail.empty()) {
    return absl::StrCat("; the end of ", log, ":\n", tail);
  }
  std::error_code error;
  const std::filesystem::space_info space = std::filesystem::space(log, error);
  return absl::StrCat("; its log is empty: ", log,
                      !error && space.available < (1 << 16) ? ", where no space is left; make room" : "");
}

}  // namespace

absl::StatusOr<std::unique_ptr<LocalCluster>> LocalCluster::Start(const Options& options,
                                                                  const std::function<bool()>& interrupted) {
  std::unique_ptr<LocalCluster> cluster(new LocalCluster(options));
  for (const std::string& folder : {cluster->logs(), options.state + "/controller"}) {
    std::error_code error;
    std::filesystem::create_directories(folder, error);
    if (error) {
      return absl::FailedPreconditionError(
          platform::SystemError(error.value(), absl::StrCat("cannot create the folder ", Escape(folder)))
              .message());
    }
  }
  std::vector<std::string> flags = {"--state",          options.state + "/controller",
                                    "--listen",         options.address,
                                    "--metrics-listen", options.metrics_listen};
  if (!options.listen.empty()) {
    flags.insert(flags.end(), {"--listen", options.listen});
  }
  TANDEM_RETURN_IF_ERROR(cluster->StartDaemon("controller", "tandem-controller", std::move(flags)));
  TANDEM_RETURN_IF_ERROR(cluster->AwaitController(interrupted));
  for (int i = 1; i <= options.workers; ++i) {
    const std::string id = absl::StrCat("local-", i);
    const std::string state = absl::StrCat(options.state, "/", id);
    std::vector<std::string> arguments = {
        "--controller", options.address, "--id",    id,
        "--state",      state,           "--slots", absl::StrCat(options.slots)};
    if (!options.trainer.empty()) {
      arguments.insert(arguments.end(), {"--trainer", options.trainer});
    }
    TANDEM_RETURN_IF_ERROR(cluster->StartDaemon(id, "tandem-worker", std::move(arguments)));
  }
  cluster->client_ = std::make_unique<Client>(Address{options.address, Address::Source::kUp});
  TANDEM_RETURN_IF_ERROR(cluster->AwaitWorkers(interrupted));
  return cluster;
}

std::string LocalCluster::WorkersText() const {
  return cli::WorkersText(options_.workers, options_.slots, gpus_);
}

std::string LocalCluster::logs() const { return options_.state + "/logs"; }

absl::Status LocalCluster::StartDaemon(const std::string& name, const std::string& program,
                                       std::vector<std::string> arguments) {
  TANDEM_ASSIGN_OR_RETURN(
      DaemonProcess daemon,
      DaemonProcess::Start({.name = name == "controller" ? "the controller" : "worker " + name,
                            .program = options_.bin_dir + "/" + program,
                            .arguments = std::move(arguments),
                            .log = logs() + "/" + name + ".log"}));
  daemons_.push_back(std::move(daemon));
  return absl::OkStatus();
}

absl::Status LocalCluster::AwaitController(const std::function<bool()>& interrupted) {
  const absl::Time deadline = platform::SteadyClock().Now() + kStartTimeout;
  const std::string socket(absl::StripPrefix(options_.address, "unix:"));
  while (!platform::IsListening(socket).value_or(false)) {
    TANDEM_RETURN_IF_ERROR(Check());
    if (interrupted()) {
      return absl::CancelledError("interrupted");
    }
    if (platform::SteadyClock().Now() >= deadline) {
      return absl::DeadlineExceededError(absl::StrCat("the controller does not listen on ", options_.address,
                                                      " after ", absl::FormatDuration(kStartTimeout),
                                                      LogText(daemons_[0])));
    }
    absl::SleepFor(kPoll);
  }
  return absl::OkStatus();
}

absl::Status LocalCluster::AwaitWorkers(const std::function<bool()>& interrupted) {
  const absl::Time deadline = platform::SteadyClock().Now() + kStartTimeout;
  while (true) {
    TANDEM_RETURN_IF_ERROR(Check());
    if (interrupted()) {
      return absl::CancelledError("interrupted");
    }
    const absl::StatusOr<std::vector<v1::Worker>> workers = client_->ListWorkers();
    const auto is_connected = [&](const DaemonProcess& daemon) {
      return workers.ok() && std::any_of(workers->begin(), workers->end(), [&](const v1::Worker& worker) {
               return worker.connected() && "worker " + worker.id() == daemon.command().name;
             });
    };
    const auto missing = std::find_if_not(daemons_.begin() + 1, daemons_.end(), is_connected);
    if (missing == daemons_.end()) {
      for (const v1::Worker& worker : *workers) {
        gpus_ = std::max(gpus_, worker.gpus());
      }
      return absl::OkStatus();
    }
    if (platform::SteadyClock().Now() >= deadline) {
      return absl::DeadlineExceededError(
          absl::StrCat(missing->command().name, " has not reached the controller after ",
                       absl::FormatDuration(kStartTimeout), workers.ok() ? "" : ": ",
                       workers.ok() ? "" : workers.status().message(), LogText(*missing)));
    }
    absl::SleepFor(kPoll);
  }
}

absl::Status LocalCluster::Check() {
  for (DaemonProcess& daemon : daemons_) {
    if (!daemon.Running()) {
      return absl::AbortedError(absl::StrCat(daemon.EndText(), LogText(daemon)));
    }
  }
  return absl::OkStatus();
}

void LocalCluster::SignalWorkers(int signal) {
  for (size_t i = 1; i < daemons_.size(); ++i) {
    daemons_[i].Signal(signal);
  }
}

void LocalCluster::Stop(absl::Duration grace) {
  client_.reset();  // an open connection would hold the controller's shutdown up
  SignalWorkers(SIGTERM);
  const absl::Time until = platform::SteadyClock().Now() + grace;
  for (size_t i = 1; i < daemons_.size(); ++i) {
    if (!daemons_[i].WaitEnd(until - platform::SteadyClock().Now())) {
      daemons_[i].Signal(SIGKILL);
    }
  }
  daemons_[0].Signal(SIGTERM);
  if (!daemons_[0].WaitEnd(grace)) {
    daemons_[0].Signal(SIGKILL);
  }
}

std::string WorkersText(int workers, int cpu_slots, int gpus) {
  const std::string some = platform::CountedText(workers, "worker");
  const std::string cpu = platform::CountedText(cpu_slots, "CPU slot");
  const std::string gpu = platform::CountedText(gpus, "GPU slot");
  if (workers == 1) {
    return absl::StrCat(some, " with ", gpus > 0 ? absl::StrCat(gpu, " and ") : "", cpu);
  }
  return absl::StrCat(some, " with ", cpu, " each",
                      gpus > 0 ? absl::StrCat(", and ", gpu, " that they share") : "");
}

}  // namespace tandem::cli
