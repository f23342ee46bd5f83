// SPDX-License-Identifier: Apache-2.0
// tandem-fake-trainer: a trainer that computes nothing, for the tests of both daemons. Same command line,
// socket and page as tandem-trainer. What it does is the name of the job:
//   steps-N            N steps, then Finished and exit 0
//   endless            steps until it is stopped
//   deaf               steps forever and ignores Stop
//   exit-C-at-step-N   the highest rank exits with code C in step N, without a word
//   fail-at-N          the highest rank sends Failed (a user error) and exits with 64 in step N
//   checkpoint-at-N    endless; rank 0 reports a checkpoint in step N
//   silent             closes its socket in step 3 and stays
//   lingers            finishes and closes its socket in step 3, and exits 4 s later
// Before that: every rank sets "rank-R" to "R PID", gets the keys of all ranks, and says Ready. A step takes
// 5 ms; rank 0 reports each with the norms of two items. Every rank prints a line a step.
#include <signal.h>
#include <stdio.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdlib>
#include <map>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "link/channel.h"
#include "link/exit_code.h"
#include "link/shared_page.h"
#include "link/trainer_args.h"
#include "platform/check.h"
#include "tandem/v1/trainer.pb.h"

namespace {

namespace link_ = tandem::link;
namespace v1 = tandem::v1;

// A group may have several, one for each of its uses.
constexpr int kNumCommunicators = 3;

struct Script {
  enum class End { kNever, kFinish, kExit, kFail, kSilent, kLingers };
  End end = End::kNever;
  int64_t step = 0;
  int code = 0;  // of the exit
  bool deaf = false;
  int64_t checkpoint_step = 0;
};

int64_t Number(absl::string_view text) {
  int64_t value = 0;
  TANDEM_CHECK(absl::SimpleAtoi(text, &value), "a number in the job's name");
  return value;
}

Script Parse(absl::string_view name) {
  Script script;
  if (absl::ConsumePrefix(&name, "steps-")) {
    return {.end = Script::End::kFinish, .step = Number(name)};
  }
  if (absl::ConsumePrefix(&name, "exit-")) {
    const std::vector<std::string> parts = absl::StrSplit(name, "-at-step-");
    TANDEM_CHECK(parts.size() == 2, "exit-C-at-step-N");
    return {.end = Script::End::kExit, .step = Number(parts[1]), .code = static_cast<int>(Number(parts[0]))};
  }
  if (absl::ConsumePrefix(&name, "fail-at-")) {
    return {.end = Script::End::kFail, .step = Number(name)};
  }
  if (absl::ConsumePrefix(&name, "checkpoint-at-")) {
    return {.checkpoint_step = Number(name)};
  }
  if (name == "silent") {
    return {.end = Script::End::kSilent, .step = 3};
  }
  if (name == "lingers") {
    return {.end = Script::End::kLingers, .step = 3};
  }
  if (name == "deaf") {
    return {.deaf = true};
  }
  TANDEM_CHECK(name == "endless", "the name of the job is a script of tandem-fake-trainer");
  return script;
}

int64_t NowNs(clockid_t clock) {
  timespec time;
  clock_gettime(clock, &time);
  return int64_t{time.tv_sec} * 1'000'000'000 + time.tv_nsec;
}

class FakeTrainer {
 public:
  FakeTrainer(const link_::TrainerArgs& args, link_::MappedPage page)
      : channel_(args.control_fd), page_(std::move(page)) {}

  [[noreturn]] void Run() {
    v1::ToTrainer first;
    const absl::StatusOr<bool> got = channel_.Receive(first);
    if (!got.ok() || !*got) {
      Exit(link_::ExitCode::kStopped);
    }
    TANDEM_CHECK(first.has_start(), "the first frame is Start");
    start_ = first.start();
    script_ = Parse(start_.assignment().resolved().name());
    std::thread([this] { Listen(); }).detach();
    std::thread([this] { WatchDeadline(); }).detach();
    SetPhase(v1::RANK_PHASE_CONNECTING);
    Rendezvous();
    SetPhase(v1::RANK_PHASE_LOADING);
    v1::FromTrainer ready;
    ready.mutable_ready()->set_program_digest("fake");
    ready.mutable_ready()->set_layout_digest("fake");
    ready.mutable_ready()->set_data_digest("fake");
    ready.mutable_ready()->set_build(start_.build());
    Tell(ready);
    if (rank() == 0) {
      SendTable();
    }
    SetPhase(v1::RANK_PHASE_READY);
    for (int64_t step = 1;; ++step) {
      Step(step);
    }
  }

 private:
  int rank() const { return start_.rank(); }
  int num_ranks() const { return start_.assignment().slots_size(); }
  bool is_last() const { return rank() == num_ranks() - 1; }

  [[noreturn]] static void Exit(link_::ExitCode code) { _exit(static_cast<int>(code)); }

  void Tell(const v1::FromTrainer& message) {
    if (!channel_.Send(message).ok()) {
      Exit(link_::ExitCode::kStopped);
    }
  }

  void SetPhase(v1::RankPhase phase) {
    page_->phase.store(phase);
    page_->progress_monotonic_ns.store(NowNs(CLOCK_MONOTONIC));
  }

  void Listen() {
    while (true) {
      v1::ToTrainer message;
      const absl::StatusOr<bool> got = channel_.Receive(message);
      if (silent_) {
        return;
      }
      if (!got.ok() || !*got) {
        Exit(link_::ExitCode::kStopped);
      }
      if (message.has_value()) {
        const std::lock_guard lock(mu_);
        values_[message.value().key()] = message.value().value();
        changed_.notify_all();
      } else if (message.request() == v1::DESIRED_STOP_NOW) {
        if (!script_.deaf) {
          Exit(link_::ExitCode::kStopped);
        }
      } else {
        v1::FromTrainer done;
        done.set_request_done(message.request_id());
        Tell(done);
      }
    }
  }

  void WatchDeadline() {
    while (true) {
      const int64_t deadline = page_->orphan_deadline_boottime_ns.load();
      if (deadline != 0 && NowNs(CLOCK_BOOTTIME) > deadline) {
        Exit(link_::ExitCode::kFenced);
      }
      std::this_thread::sleep_for(std::chrono::milliseconds(20));
    }
  }

  void Rendezvous() {
    v1::FromTrainer message;
    v1::KvSet& set = *message.mutable_set();
    *set.mutable_id() = start_.assignment().id();
    set.set_key(absl::StrCat("rank-", rank()));
    set.set_value(absl::StrCat(rank(), " ", getpid()));
    set.set_rank(rank());
    Tell(message);
    for (int i = 0; i < num_ranks(); ++i) {
      v1::KvGet& get = *message.mutable_get();
      *get.mutable_id() = start_.assignment().id();
      get.set_key(absl::StrCat("rank-", i));
      get.set_rank(rank());
      Tell(message);
    }
    std::unique_lock lock(mu_);
    changed_.wait(lock, [this] { return static_cast<int>(values_.size()) == num_ranks(); });
    for (const auto& [key, value] : values_) {
      const std::vector<std::string> parts = absl::StrSplit(value, ' ');
      TANDEM_CHECK(parts.size() == 2 && "rank-" + parts[0] == key, "the value that its rank has set");
    }
  }

  void SendTable() {
    v1::FromTrainer message;
    message.mutable_table()->set_digest("table");
    for (const char* const name : {"a.weight", "b.weight"}) {
      v1::Parameter& item = *message.mutable_table()->add_parameters();
      item.set_name(name);
      item.add_shape(2);
    }
    Tell(message);
  }

  void Step(int64_t step) {
    page_->step.store(step);
    page_->instruction.store(static_cast<int64_t>(step) % 7);
    page_->num_communicators.store(kNumCommunicators);
    for (int i = 0; i < kNumCommunicators; ++i) {
      page_->collectives[i].store(static_cast<uint64_t>(step) * (i + 1));
    }
    SetPhase(v1::RANK_PHASE_STEPPING);
    printf("rank %d step %ld\n", rank(), static_cast<long>(step));
    fflush(stdout);
    if (script_.step == step && script_.end != Script::End::kFinish) {
      End();
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
    if (rank() == 0) {
      Report(step);
    }
    if (script_.step == step && script_.end == Script::End::kFinish) {
      End();
    }
  }

  void Report(int64_t step) {
    v1::FromTrainer message;
    v1::StepReport& report = *message.mutable_report();
    report.set_step(step);
    report.set_loss(5.5 / static_cast<double>(step));
    report.set_grad_norm(1);
    report.set_learning_rate(1e-3);
    report.set_tokens(1024);
    report.set_seconds(0.005);
    for (int i = 0; i < 2; ++i) {
      report.mutable_norms()->add_weight(i + 1);
      report.mutable_norms()->add_gradient(i + 0.5);
      report.mutable_norms()->add_update(i + 0.25);
    }
    report.mutable_norms()->set_table_digest("table");
    Tell(message);
    if (script_.checkpoint_step == step) {
      v1::CheckpointCommitted& checkpoint = *message.mutable_checkpoint();
      checkpoint.set_step(step);
      checkpoint.set_path(absl::StrCat("step-", step));
      Tell(message);
    }
  }

  void End() {
    v1::FromTrainer message;
    switch (script_.end) {
      case Script::End::kNever:
        return;
      case Script::End::kFinish:
        message.mutable_finished()->set_step(script_.step);
        Tell(message);
        SetPhase(v1::RANK_PHASE_FINISHED);
        Exit(link_::ExitCode::kDone);
      case Script::End::kExit:
        if (is_last()) {
          _exit(script_.code);
        }
        return;
      case Script::End::kFail:
        if (!is_last()) {
          return;
        }
        message.mutable_failed()->set_class_(v1::FAILURE_CLASS_USER);
        message.mutable_failed()->set_reason("BadData");
        message.mutable_failed()->set_message("the data is not what it should be");
        Tell(message);
        Exit(link_::ExitCode::kUserError);
      case Script::End::kSilent:
        silent_ = true;
        channel_.Shutdown();
        while (true) {
          pause();
        }
      case Script::End::kLingers:  // as a process of whose memory the kernel has much to take back
        message.mutable_finished()->set_step(script_.step);
        Tell(message);
        SetPhase(v1::RANK_PHASE_FINISHED);
        silent_ = true;
        channel_.Shutdown();
        std::thread([] {
          std::this_thread::sleep_for(std::chrono::seconds(4));
          Exit(link_::ExitCode::kDone);
        }).detach();
        syscall(SYS_exit, 0);  // this thread alone, which is the first of the process
    }
  }

  link_::Channel channel_;
  link_::MappedPage page_;
  v1::Start start_;
  Script script_;
  std::atomic<bool> silent_{false};
  std::mutex mu_;
  std::condition_variable changed_;
  std::map<std::string, std::string> values_;  // guarded by mu_
};

}  // namespace

int main(int argc, char** argv) {
  const absl::StatusOr<link_::TrainerArgs> args = link_::TrainerArgs::Parse(argc, argv);
  if (!args.ok()) {
    fprintf(stderr, "%s\n", std::string(args.status().message()).c_str());
    return static_cast<int>(link_::ExitCode::kUserError);
  }
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (getppid() != args->parent_pid) {
    return static_cast<int>(link_::ExitCode::kStopped);
  }
  absl::StatusOr<link_::MappedPage> page = link_::MappedPage::Attach(args->page_fd);
  if (!page.ok()) {
    fprintf(stderr, "%s\n", std::string(page.status().message()).c_str());
    return static_cast<int>(link_::ExitCode::kUserError);
  }
  FakeTrainer(*args, *std::move(page)).Run();
}
