// SPDX-License-Identifier: Apache-2.0
// tandem-worker: the daemon on each machine. See daemon.h.
#include <grpc/support/log.h>
#include <signal.h>
#include <stdlib.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "CLI/CLI.hpp"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "absl/time/time.h"
#include "config/flags.h"
#include "jobspec/check_files.h"
#include "jobspec/jobspec.h"
#include "platform/build_info.h"
#include "platform/clock.h"
#include "platform/control_groups.h"
#include "platform/failpoint.h"
#include "platform/files.h"
#include "platform/host.h"
#include "platform/log.h"
#include "platform/net_address.h"
#include "platform/program_start.h"
#include "platform/random.h"
#include "platform/regular_file.h"
#include "platform/shown_text.h"
#include "platform/signal_name.h"
#include "platform/status_macros.h"
#include "proto/protocol.h"
#include "tls/client_tls.h"
#include "worker/daemon.h"
#include "worker/data_address.h"
#include "worker/gpus.h"
#include "worker/instruction_names.h"
#include "worker/launcher.h"
#include "worker/path_rules.h"

namespace {

namespace platform = tandem::platform;
namespace worker = tandem::worker;

// Returns the GPUs that ranks may use. Ranks inherit the list by UUID, so that the number of a rank's slot
// is also that of its GPU.
worker::OfferedGpus GpuSlots(const std::string& trainer) {
  absl::StatusOr<std::vector<tandem::v1::Slot>> gpus = worker::FindGpus();
  const char* const visible = getenv("CUDA_VISIBLE_DEVICES");
  if (gpus.ok() && visible != nullptr && absl::StrContains(visible, "MIG-")) {
    if (const absl::StatusOr<std::vector<tandem::v1::Slot>> migs = worker::FindMigs(); migs.ok()) {
      gpus->insert(gpus->end(), migs->begin(), migs->end());
    }
  }
  const bool has_program = access(worker::CudaTrainer(trainer).c_str(), X_OK) == 0;
  worker::OfferedGpus offered = worker::OfferGpus(gpus, visible, has_program);
  if (!offered.unused.empty()) {
    platform::Log(has_program ? platform::LogLevel::kWarning : platform::LogLevel::kInfo,
                  "no GPU of this machine is offered", {{"reason", offered.unused}});
  }
  if (!offered.slots.empty()) {
    setenv("CUDA_VISIBLE_DEVICES", worker::VisibleDevices(offered.slots).c_str(), 1);
  }
  return offered;
}

// CPU slots follow the GPUs, whose indices are their numbers for CUDA.
std::vector<tandem::v1::Slot> CpuSlots(int count, int first_index) {
  const int64_t memory = platform::MemoryBytes();
  std::vector<tandem::v1::Slot> slots;
  for (int i = 0; i < count; ++i) {
    tandem::v1::Slot& slot = slots.emplace_back();
    slot.set_index(first_index + i);
    slot.set_device(tandem::v1::DEVICE_CPU);
    slot.set_name("cpu");
    slot.set_memory_bytes(memory / count);
    slot.set_healthy(true);
  }
  return slots;
}

// Returns all violations in one line, because a cause has one line. Reads no files of a job that this build
// would train as another job, and none that the job may not read.
std::string CheckFiles(const tandem::v1::JobSpec& resolved, const worker::PathRules& rules,
                       const tandem::jobspec::BeforePath& before) {
  std::vector<tandem::v1::Violation> violations = tandem::jobspec::CheckKnown(resolved);
  if (violations.empty()) {
    violations = worker::CheckPaths(resolved, rules, before);
  }
  if (violations.empty()) {
    violations = tandem::jobspec::CheckFiles(resolved, before);
  }
  const std::string text = tandem::jobspec::ToText(violations);
  return absl::StrJoin(absl::StrSplit(text, '\n', absl::SkipEmpty()), "; ");
}

std::string CheckDuration(const std::string& text) {
  absl::Duration duration;
  return absl::ParseDuration(text, &duration) && duration >= absl::ZeroDuration() &&
                 duration < absl::InfiniteDuration()
             ? ""
             : absl::StrCat(text, " is not a duration; allowed: 0s, 30s, 10m and the like");
}

// Checks the address of a controller. An address with a scheme must be one of gRPC's.
std::string WhyNotController(const std::string& address) {
  const std::optional<platform::HostPort> target = platform::ReadTarget(address);
  return address.starts_with("unix-abstract:") || (target.has_value() && target->port > 0)
             ? ""
             : platform::WhyNotAddress(address, {.socket = true});
}

std::string WhyNotId(const std::string& id) {
  return tandem::proto::IsWorkerId(id)
             ? ""
             : absl::StrCat("\"", platform::Shown(id),
                            "\" is not the name of a worker; allowed: ", tandem::proto::kWorkerIds);
}

// Prints why the start failed, in one line.
int Fail(const absl::Status& status) {
  std::fprintf(stderr, "tandem-worker: %s\n", std::string(status.message()).c_str());
  return 1;
}

// The flags of the command line, as the user wrote them.
struct Flags {
  std::string controller;
  std::string id = platform::HostName();
  std::string state;
  int slots = platform::NumProcessors();
  std::string trainer = platform::BesideThisProgram("tandem-trainer");
  std::string data_address;
  tandem::tls::TlsFiles tls;
  worker::PathRules paths;
  std::string user;
  std::string drain_timeout = "0s";
  std::string failpoints;
};

// `flags` must outlive `app`.
void AddFlags(CLI::App& app, Flags& flags) {
  app.add_option("--controller", flags.controller, "Address of the controller: unix:/path or host:port")
      ->check(WhyNotController)
      ->required();
  app.add_option("--id", flags.id, "Name of this worker, unique in the cluster")
      ->check(WhyNotId)
      ->capture_default_str();
  app.add_option("--state", flags.state,
                 "State directory: data that must survive a restart, and the logs of the ranks")
      ->required();
  app.add_option("--slots", flags.slots, "CPU slots: how many ranks may run here on CPUs at the same time")
      ->check(CLI::Range(1, 4096))
      ->capture_default_str();
  app.add_option("--trainer", flags.trainer,
                 "Path of tandem-trainer. If PATH-cuda exists, too, the worker offers the GPUs in "
                 "CUDA_VISIBLE_DEVICES, or all GPUs")
      ->capture_default_str();
  app.add_option("--data-address", flags.data_address,
                 "Address at which other workers reach the ranks of this one; default: the one from which "
                 "this machine reaches the controller");
  app.add_option("--read-root", flags.paths.read,
                 "Folder below which jobs may read data; may be repeated; default: anywhere")
      ->type_name("FOLDER")
      ->allow_extra_args(false);
  app.add_option(
         "--write-root", flags.paths.write,
         "Folder below which jobs may write checkpoints and exports; may be repeated; default: anywhere")
      ->type_name("FOLDER")
      ->allow_extra_args(false);
  app.add_option("--user", flags.user,
                 "User that ranks run as; the worker itself must run as root or as this user")
      ->type_name("NAME");
  tandem::config::AddTlsFlags(app, flags.tls);
  app.add_option("--tls-server-name", flags.tls.server_name,
                 "Name in the controller's certificate, if it is not the host of --controller")
      ->type_name("NAME");
  app.add_option("--drain-timeout", flags.drain_timeout,
                 "After SIGTERM or SIGHUP, the jobs that have ranks here get this long to save a checkpoint "
                 "and end; then, "
                 "and at SIGINT, the ranks are stopped")
      ->capture_default_str()
      ->check(CheckDuration);
#ifdef TANDEM_FAILPOINTS
  app.add_option("--failpoint", flags.failpoints, "NAME=kill or NAME=kill@N: die there");
#endif
  app.set_version_flag("--version", platform::BuildVersion());
}

bool DialsTls(const Flags& flags) { return flags.tls.given() && !flags.controller.starts_with("unix:"); }

// Returns what is wrong with the flags on every machine; empty if nothing is.
std::string WhyNot(const Flags& flags) {
  if (const absl::Status named = tandem::tls::CheckNamed(flags.tls); DialsTls(flags) && !named.ok()) {
    return std::string(named.message());
  }
  // A name or a route may appear later, but an address in another form does not become right.
  if (const absl::Status known = worker::LocalAddressToward(flags.controller).status();
      flags.data_address.empty() && absl::IsInvalidArgument(known)) {
    return absl::StrCat("--controller: ", known.message(), "; name one with --data-address");
  }
  if (!DialsTls(flags) && !platform::IsLocalAddress(flags.controller)) {
    return absl::StrCat("--controller ", flags.controller,
                        " is not on this machine, and that machine decides what runs here: give --tls-ca, "
                        "--tls-cert and --tls-key "
                        "(`tandem certs` makes them); without TLS allowed: 127.0.0.1:PORT, unix:/PATH");
  }
  return "";
}

// Finds what the flags name on this machine: files, a user, an address, GPUs. Errors name the flag.
absl::StatusOr<worker::DaemonConfig> ConfigOf(const Flags& flags) {
  worker::DaemonConfig config{
      .controller = {.target = flags.controller, .data_address = flags.data_address},
      .settings = {.worker_id = flags.id,
                   .hostname = platform::HostName(),
                   .build = platform::BuildVersion()},
  };
  std::error_code error;
  config.state_folder = std::filesystem::absolute(flags.state, error).string();
  if (error) {
    return absl::InvalidArgumentError("--state: " + error.message());
  }
  if (access(flags.trainer.c_str(), X_OK) != 0 || !std::filesystem::is_regular_file(flags.trainer, error)) {
    return absl::NotFoundError(absl::StrCat("--trainer: ", flags.trainer,
                                            " is not a program that this user may run; name the trainer"));
  }
  config.trainer = std::filesystem::absolute(flags.trainer, error).string();
  if (DialsTls(flags)) {
    TANDEM_ASSIGN_OR_RETURN(config.controller.tls, tandem::tls::ClientTls::Open(flags.tls));
  }
  if (!flags.user.empty()) {
    TANDEM_ASSIGN_OR_RETURN(config.run_as, worker::FindUser(flags.user));
  }
  if (!flags.data_address.empty()) {
    if (const absl::Status status = worker::CheckDataAddress(flags.data_address); !status.ok()) {
      return absl::InvalidArgumentError(
          absl::StrCat("--data-address: ", status.message(), "; name one of its own, or omit the flag"));
    }
  }
  std::vector<tandem::v1::Slot>& slots = config.settings.slots;
  worker::OfferedGpus gpus = GpuSlots(flags.trainer);
  slots = std::move(gpus.slots);
  config.settings.gpus_unused = std::move(gpus.unused);
  for (tandem::v1::Slot& slot : CpuSlots(flags.slots, static_cast<int>(slots.size()))) {
    slots.push_back(std::move(slot));
  }
  return config;
}

// Prepares the process for the daemon. Call before the first thread starts.
void PrepareProcess() {
  platform::IgnoreLockCycles();
  platform::RaiseDescriptorLimit();  // each rank, and each log that is read, needs a few
  // One thread starts trainers by fork and exec; gRPC's own fork handlers would be in the way.
  setenv("GRPC_ENABLE_FORK_SUPPORT", "0", 1);
  // Its errors come with the statuses of calls, and its own lines do not have our log's form.
  gpr_set_log_function([](gpr_log_func_args*) {});
  signal(SIGPIPE, SIG_IGN);
  signal(SIGXFSZ, SIG_IGN);  // a write to a file that may not grow returns an error; trainers inherit this
}

// Runs until a signal ends the daemon, or the controller does. Returns the exit code.
int Serve(worker::DaemonConfig config, const worker::PathRules& rules, absl::Duration drain) {
  const sigset_t signals = platform::BlockEndSignals();
  const bool is_root = !config.run_as.has_value() && geteuid() == 0;
  config.rank_groups = worker::RankGroups::Make();
  absl::StatusOr<std::unique_ptr<worker::Daemon>> daemon = worker::Daemon::Open(
      std::move(config),
      {.check_files =
           [rules](const tandem::v1::JobSpec& resolved, const tandem::jobspec::BeforePath& before) {
             return CheckFiles(resolved, rules, before);
           },
       .name_program = worker::NameProgram},
      platform::SteadyClock(), platform::SystemRandom(), platform::SystemFiles());
  if (!daemon.ok()) {
    const absl::string_view remedy = platform::RemedyOf(daemon.status());
    const bool of_folder = !remedy.empty() && !absl::IsOutOfRange(daemon.status());
    return Fail(absl::Status(daemon.status().code(),
                             absl::StrCat("--state: ", daemon.status().message(), remedy.empty() ? "" : "; ",
                                          remedy, of_folder ? ", or give another --state" : "")));
  }
  if (is_root) {
    platform::Log(
        platform::LogLevel::kWarning,
        "ranks run as root, so every user who submits a job reads and writes every file; give --user");
  }
  std::thread([&signals, &daemon, drain] {
    int signal = 0;
    while (sigwait(&signals, &signal) == 0) {
      platform::Log(platform::LogLevel::kInfo, "stopping", {{"signal", platform::SignalName(signal)}});
      (*daemon)->AskShutdown(signal == SIGINT ? absl::ZeroDuration() : drain);
    }
  }).detach();
  const absl::Status status = (*daemon)->Run();
  if (!status.ok()) {
    platform::Log(platform::LogLevel::kError, std::string(status.message()));
  }
  // Everything that counts is on disk. The process must not wait for a check that hangs in a file system.
  fflush(nullptr);
  _exit(status.ok() ? 0 : 1);
}

}  // namespace

int main(int argc, char** argv) {
  if (const absl::Status status =
          platform::OpenClosedStandardDescriptors(platform::ClosedDescriptor::kSilent);
      !status.ok()) {
    return Fail(status);
  }
  Flags flags;
  CLI::App app("Runs the ranks that the controller assigns to this machine.", "tandem-worker");
  AddFlags(app, flags);
  if (const std::optional<int> code = tandem::config::ParseFlags(app, argc, argv)) {
    return *code;
  }
  platform::SetLogComponent("worker");
#ifdef TANDEM_FAILPOINTS
  if (!flags.failpoints.empty()) {
    if (const absl::Status status = platform::SetFailpoints(flags.failpoints); !status.ok()) {
      return Fail(status);
    }
  }
#endif
  if (const std::string why = WhyNot(flags); !why.empty()) {
    return tandem::config::Refuse(app, why);
  }
  absl::StatusOr<worker::DaemonConfig> config = ConfigOf(flags);
  if (!config.ok()) {
    return Fail(config.status());
  }
  const absl::StatusOr<worker::PathRules> rules = worker::Canonical(flags.paths);
  if (!rules.ok()) {
    return Fail(rules.status());
  }
  absl::Duration drain;
  absl::ParseDuration(flags.drain_timeout, &drain);
  PrepareProcess();
  return Serve(*std::move(config), *rules, drain);
}
