// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sys/types.h>

#include <condition_variable>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "absl/time/time.h"
#include "link/channel.h"
#include "link/shared_page.h"
#include "tandem/v1/trainer.pb.h"

namespace tandem::trainer {

// Returns the assignment that the controller would send for a resolved job whose ranks are all on this
// machine, rank r on slot r.
v1::Assignment AssignmentOf(const v1::JobSpec& resolved, int attempt = 1);

// The worker daemon's side of real tandem-trainer processes: starts them, answers their rendezvous, and
// records their messages. The destructor kills processes that still run.
class FakeDaemon {
 public:
  // `program` is the trainer's path, `build` the daemon's build in Start. Every rank gets the same
  // assignment.
  FakeDaemon(std::string program, v1::Assignment assignment, std::string build);
  ~FakeDaemon();

  void StartRank(int rank);

  struct Exit {
    int code = -1;  // or
    int signal = 0;
  };
  // Waits for the end of the rank's process and reaps it. Unset at the deadline.
  std::optional<Exit> WaitExit(int rank, absl::Duration timeout);

  // Waits for the first message of that rank for which `match` holds. Unset at the deadline, or if the rank
  // has closed its channel before.
  template <typename Match>
  std::optional<v1::FromTrainer> WaitFor(int rank, Match match, absl::Duration timeout) {
    std::unique_lock<std::mutex> lock(mu_);
    std::optional<v1::FromTrainer> found;
    const auto look = [&] {
      for (const v1::FromTrainer& message : ranks_.at(rank)->said) {
        if (match(message)) {
          found = message;
          return true;
        }
      }
      return ranks_.at(rank)->closed;
    };
    changed_.wait_for(lock, absl::ToChronoNanoseconds(timeout), look);
    return found;
  }

  std::vector<v1::FromTrainer> MessagesOf(int rank);

  void Send(int rank, const v1::ToTrainer& message);
  void Request(int rank, v1::Desired desired, uint64_t id);
  void CloseChannel(int rank);
  // If `frozen`, stops reading the rank's messages, except for one that is being read, like a daemon that is
  // stopped or swaps.
  void SetFrozen(int rank, bool frozen);
  link::SharedPage& page(int rank) { return **ranks_.at(rank)->page; }
  pid_t pid(int rank) const { return ranks_.at(rank)->pid; }

 private:
  struct RankProcess {
    pid_t pid = -1;
    std::unique_ptr<link::Channel> channel;
    std::optional<link::MappedPage> page;
    std::vector<v1::FromTrainer> said;  // mu_
    bool closed = false;                // mu_
    bool frozen = false;                // mu_
    std::vector<std::string> asked;     // keys without a value yet; mu_
    std::thread reader;
  };

  void Read(RankProcess& process);
  void Answer(RankProcess& process, const std::string& key);

  const std::string program_;
  const v1::Assignment assignment_;
  const std::string build_;
  std::mutex mu_;
  std::condition_variable changed_;
  std::map<std::string, std::string> values_;  // mu_
  std::map<int, std::unique_ptr<RankProcess>> ranks_;
};

}  // namespace tandem::trainer
