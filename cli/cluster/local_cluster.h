// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "cli/cluster/client.h"
#include "cli/cluster/daemon_process.h"

namespace tandem::cli {

// How long `tandem up` and `tandem run` wait for a daemon to end by itself. This is more than a worker needs
// to end its ranks and to send its last reports and messages.
inline constexpr absl::Duration kStopGrace = absl::Seconds(7);

// A controller and workers on this machine: the real daemons with ordinary flags. Destruction kills what
// still runs. Not thread-safe; must be used on the main thread.
class LocalCluster {
 public:
  struct Options {
    std::string bin_dir;
    std::string state;           // folder; controller/, local-N/ and logs/ are made in it
    std::string address;         // "unix:PATH"
    std::string listen;          // a second address, "HOST:PORT"; empty: none
    std::string metrics_listen;  // "HOST:PORT" or "off"
    int workers = 1;
    int slots = 1;        // of each worker
    std::string trainer;  // empty: the worker's default
  };

  // Starts the daemons; returns when every worker is connected. Calls `interrupted` many times a second, and
  // returns Cancelled once it returns true. Other errors are a line that says what to do, then the last log
  // lines of the daemon that failed.
  static absl::StatusOr<std::unique_ptr<LocalCluster>> Start(const Options& options,
                                                             const std::function<bool()>& interrupted);

  Client& client() { return *client_; }
  // "1 worker with 8 GPU slots and 1 CPU slot".
  std::string WorkersText() const;
  // The GPUs of this machine; each of its workers offers all of them.
  int gpus() const { return gpus_; }
  std::string logs() const;  // folder

  // Returns OK while every daemon runs, otherwise which one ended, how, and its last log lines.
  absl::Status Check();

  // Sends a signal to the workers: SIGSTOP freezes them, SIGKILL ends them and their ranks at once.
  void SignalWorkers(int signal);

  // Asks the workers to end, and kills those that have not ended after `grace`; then does the same with the
  // controller.
  void Stop(absl::Duration grace);

 private:
  explicit LocalCluster(const Options& options) : options_(options) {}
  absl::Status StartDaemon(const std::string& name, const std::string& program,
                           std::vector<std::string> arguments);
  absl::Status AwaitController(const std::function<bool()>& interrupted);
  absl::Status AwaitWorkers(const std::function<bool()>& interrupted);

  const Options options_;
  std::vector<DaemonProcess> daemons_;  // the controller first, then the workers
  std::unique_ptr<Client> client_;
  int gpus_ = 0;
};

// Describes the slots of the workers on one machine: "1 worker with 2 CPU slots", "2 workers with 1 CPU
// slot each", "1 worker with 8 GPU slots and 1 CPU slot". Each worker has its own `cpu_slots`; all share
// the `gpus` of the machine.
std::string WorkersText(int workers, int cpu_slots, int gpus);

}  // namespace tandem::cli
