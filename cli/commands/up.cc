// SPDX-License-Identifier: Apache-2.0
#include <unistd.h>

#include <csignal>
#include <optional>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "cli/cluster/local_cluster.h"
#include "cli/cluster/state_folder.h"
#include "cli/commands/commands.h"
#include "cli/terminal/display_text.h"
#include "cli/terminal/error.h"
#include "cli/terminal/interrupts.h"
#include "cli/terminal/message_text.h"
#include "platform/clock.h"
#include "platform/control_groups.h"
#include "platform/host.h"
#include "platform/net_address.h"
#include "platform/status_macros.h"
#include "proto/reasons.h"

namespace tandem::cli {
namespace {

constexpr absl::Duration kEndTimeout = absl::Seconds(5);
constexpr absl::Duration kPoll = absl::Milliseconds(50);

bool HasRanks(const v1::Job& job) {
  return !HasEnded(job.state()) && job.state() != v1::JOB_STATE_QUEUED &&
         job.state() != v1::JOB_STATE_SUSPENDED;
}

// Ends the running jobs with reason ClusterStopped; queued jobs stay. A second Ctrl-C cuts the wait short.
void EndRunningJobs(Context& context, LocalCluster& cluster, Interrupts& interrupts) {
  // The workers are frozen first: the slots of a job that ends would go to a queued one.
  cluster.SignalWorkers(SIGSTOP);
  const absl::StatusOr<std::vector<v1::Job>> jobs = cluster.client().ListJobs();
  if (!jobs.ok()) {
    Note(context.console, absl::StrCat("up: cannot list the jobs that run: ", jobs.status().message()));
    return;
  }
  std::vector<std::string> ending;
  for (const v1::Job& job : *jobs) {
    if (HasRanks(job)) {
      const absl::StatusOr<v1::Job> cancelled =
          cluster.client().Cancel(job.id(), proto::ReasonCode("ClusterStopped"));
      if (cancelled.ok()) {
        ending.push_back(job.id());
        Note(context.console, absl::StrCat("up: ending job ", job.name(), " at step ", job.last_step()));
      } else {
        Note(context.console,
             absl::StrCat("up: cannot end job ", job.name(), ": ", cancelled.status().message()));
      }
    }
  }
  // The cancellations are durable now, so the ranks need not end by themselves.
  cluster.SignalWorkers(SIGKILL);
  const absl::Time until = platform::SteadyClock().Now() + kEndTimeout;
  while (!ending.empty() && platform::SteadyClock().Now() < until && interrupts.Count() < 2) {
    const absl::StatusOr<v1::Job> job = cluster.client().GetJob(ending.back());
    if (!job.ok() || HasEnded(job->state())) {
      ending.pop_back();
    } else {
      absl::SleepFor(kPoll);
    }
  }
  if (!ending.empty()) {
    Note(context.console,
         absl::StrCat("up: ", ending.size(), " of the jobs will be ended by the next `tandem up`"));
  }
}

// Refuses flags that are wrong on every machine.
absl::Status CheckFlags(const UpOptions& options) {
  if (absl::StartsWith(options.listen, "unix:")) {
    return absl::InvalidArgumentError(
        absl::StrCat("--listen: \"", Escape(options.listen),
                     "\" is a socket; allowed: HOST:PORT, as in 127.0.0.1:7471 (the private socket is "
                     "always there)"));
  }
  if (const std::string why = platform::WhyNotAddress(options.listen, {});
      !options.listen.empty() && !why.empty()) {
    return absl::InvalidArgumentError(absl::StrCat("--listen: ", why));
  }
  if (const std::string why =
          platform::WhyNotAddress(options.metrics_listen, {.word = "off", .example = "127.0.0.1:9464"});
      !why.empty()) {
    return absl::InvalidArgumentError(absl::StrCat("--metrics-listen: ", why));
  }
  return absl::OkStatus();
}

// Locks the folder for this process; AlreadyExists, with its pid and socket, while another `tandem up` holds
// it.
absl::StatusOr<FolderLock> TakeFolder(const std::string& folder) {
  absl::StatusOr<FolderLock> lock = FolderLock::Acquire(folder);
  if (lock.ok()) {
    return lock;
  }
  const std::optional<RunningUp> other = FindRunningUp(folder);
  if (!other.has_value()) {
    return lock;
  }
  return absl::AlreadyExistsError(
      absl::StrCat("another `tandem up` is running: pid ", other->pid, ", socket ",
                   other->address.empty() ? "(starting)" : other->address,
                   "; use it, or end it with Ctrl-C there or `kill ", other->pid, "`"));
}

// Checks that the controller can listen where the flags say; warns about plain TCP.
absl::Status CheckPorts(Console& console, const UpOptions& options) {
  if (options.metrics_listen != "off") {
    if (const absl::Status status = CanListen(options.metrics_listen); !status.ok()) {
      return absl::UnavailableError(
          absl::StrCat("cannot listen for Prometheus on ", status.message(),
                       "; choose another --metrics-listen, or --metrics-listen off"));
    }
  }
  if (options.listen.empty()) {
    return absl::OkStatus();
  }
  if (!platform::IsLocalAddress(options.listen)) {
    return absl::InvalidArgumentError(
        absl::StrCat("--listen ", Escape(options.listen),
                     ": without TLS only this machine may reach the controller, as at 127.0.0.1:7471; for "
                     "other machines start tandem-controller with --tls-ca, --tls-cert and --tls-key "
                     "(`tandem certs init` makes them)"));
  }
  if (const absl::Status status = CanListen(options.listen); !status.ok()) {
    return absl::UnavailableError(
        absl::StrCat("cannot listen on ", status.message(), "; choose another --listen"));
  }
  Note(console,
       absl::StrCat("up: warning: ", options.listen,
                    " is plain TCP: every user of this machine can run jobs as you; without --listen only a "
                    "private socket is used"));
  return absl::OkStatus();
}

// Returns "tandem is up: ..." and a line for each address and folder.
std::string WhatIsUp(const LocalCluster& cluster, const UpOptions& options, const std::string& address,
                     const std::string& folder) {
  const bool page = platform::IsLocalAddress(options.metrics_listen);
  return absl::StrCat("tandem is up: a controller and ", cluster.WorkersText(), "\n", "  address  ", address,
                      "\n", options.listen.empty() ? "" : absl::StrCat("  and      ", options.listen, "\n"),
                      page ? absl::StrCat("  page     http://", options.metrics_listen, "/\n") : "",
                      options.metrics_listen == "off"
                          ? ""
                          : absl::StrCat("  metrics  http://", options.metrics_listen, "/metrics\n"),
                      "  state    ", folder, "\n", "  logs     ", cluster.logs(), "\n");
}

}  // namespace

Outcome Up(Context& context, const UpOptions& options) {
  Console& console = context.console;
  TANDEM_ASSIGN_OR_RETURN(const std::string root, StateRoot(context.environment));
  TANDEM_RETURN_IF_ERROR(CheckFlags(options));
  Interrupts interrupts;
  const std::string folder = UpFolder(root);
  TANDEM_ASSIGN_OR_RETURN(FolderLock lock, TakeFolder(folder));
  TANDEM_RETURN_IF_ERROR(CheckPorts(console, options));
  TANDEM_ASSIGN_OR_RETURN(const SocketFolder socket, SocketFolder::Make(folder));
  const std::string address = socket.address();
  TANDEM_RETURN_IF_ERROR(lock.Publish(""));
  const int slots = options.slots > 0 ? options.slots : platform::NumProcessors();
  const absl::StatusOr<std::unique_ptr<LocalCluster>> cluster =
      LocalCluster::Start({.bin_dir = options.bin_dir.empty() ? context.own_folder : options.bin_dir,
                           .state = folder,
                           .address = address,
                           .listen = options.listen,
                           .metrics_listen = options.metrics_listen,
                           .workers = options.workers,
                           .slots = slots,
                           .trainer = options.trainer},
                          [&] { return interrupts.Count() > 0; });
  if (!cluster.ok()) {
    return interrupts.Count() > 0 ? Outcome(kCancelled) : cluster.status();
  }
  TANDEM_RETURN_IF_ERROR(lock.Publish(address));
  console.Write(Stream::kOut, WhatIsUp(**cluster, options, address, folder));
  Note(console,
       "up: `tandem submit -f job.yaml` finds it by itself; Ctrl-C ends running jobs, queued ones stay");
  bool has_socket = true;
  while (interrupts.Count() == 0) {
    TANDEM_RETURN_IF_ERROR((*cluster)->Check());
    if (has_socket && ::access(socket.socket().c_str(), F_OK) != 0) {
      has_socket = false;
      Note(console, absl::StrCat("up: the socket ", socket.socket(),
                                 " was removed, so no command reaches this controller any more; running jobs "
                                 "continue; end this with Ctrl-C and start `tandem up` again"));
    }
    absl::SleepFor(kPoll);
  }
  EndRunningJobs(context, **cluster, interrupts);
  (*cluster)->Stop(interrupts.Count() > 1 ? absl::ZeroDuration() : kStopGrace);
  return kCancelled;
}

}  // namespace tandem::cli
