// SPDX-License-Identifier: Apache-2.0
#include "tests/trainer/fake_daemon.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <stdexcept>
#include <utility>

#include "link/trainer_args.h"
#include "parallel/from_spec.h"
#include "parallel/job_groups.h"

namespace tandem::trainer {

v1::Assignment AssignmentOf(const v1::JobSpec& resolved, int attempt) {
  v1::Assignment assignment;
  assignment.mutable_id()->set_job_id("0123456789ab");
  assignment.mutable_id()->set_attempt(attempt);
  assignment.set_desired(v1::DESIRED_RUN);
  *assignment.mutable_resolved() = resolved;
  const int ranks = resolved.parallelism().ranks();
  const std::vector<parallel::Group> groups =
      parallel::BuildProcessGroups(parallel::GridOf(resolved.parallelism())).value();
  for (int rank = 0; rank < ranks; ++rank) {
    v1::RankStart& start = *assignment.add_ranks();
    start.set_rank(rank);
    start.set_slot(rank);
  }
  for (const parallel::Group& group : groups) {
    v1::GroupList& list = *assignment.add_groups();
    list.set_name(group.name);
    list.mutable_ranks()->Add(group.ranks.begin(), group.ranks.end());
    if (group.clone_of >= 0) {
      list.set_clone_of(group.clone_of);
    }
  }
  return assignment;
}

FakeDaemon::FakeDaemon(std::string program, v1::Assignment assignment, std::string build)
    : program_(std::move(program)), assignment_(std::move(assignment)), build_(std::move(build)) {}

FakeDaemon::~FakeDaemon() {
  for (auto& [rank, process] : ranks_) {
    if (process->pid > 0) {
      kill(process->pid, SIGKILL);
      waitpid(process->pid, nullptr, 0);
    }
    process->channel->Shutdown();
    SetFrozen(rank, false);
    process->reader.join();
  }
}

void FakeDaemon::StartRank(int rank) {
  auto process = std::make_unique<RankProcess>();
  int ends[2];
  if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) != 0) {
    throw std::runtime_error("socketpair");
  }
  process->channel = std::make_unique<link::Channel>(ends[0]);
  process->page.emplace(*link::MappedPage::Create());
  constexpr int kControl = 3;
  constexpr int kPage = 4;
  const std::vector<std::string> arguments =
      link::TrainerArgs{.control_fd = kControl, .page_fd = kPage, .parent_pid = getpid()}.ToArgv(program_);
  std::vector<char*> argv;
  for (const std::string& argument : arguments) {
    argv.push_back(const_cast<char*>(argument.c_str()));
  }
  argv.push_back(nullptr);
  // Above the targets, so that neither dup2 closes the other's source.
  const int control = fcntl(ends[1], F_DUPFD_CLOEXEC, 64);
  const int page = fcntl(process->page->fd(), F_DUPFD_CLOEXEC, 64);
  process->pid = fork();
  if (process->pid == 0) {
    dup2(control, kControl);
    dup2(page, kPage);
    execv(argv[0], argv.data());
    _exit(127);
  }
  close(control);
  close(page);
  close(ends[1]);

  v1::ToTrainer first;
  v1::Start& start = *first.mutable_start();
  *start.mutable_assignment() = assignment_;
  start.set_rank(rank);
  start.set_data_address("127.0.0.1");
  start.set_build(build_);
  if (!process->channel->Send(first).ok()) {
    throw std::runtime_error("the trainer does not take its Start");
  }
  RankProcess& started = *process;
  ranks_[rank] = std::move(process);
  started.reader = std::thread([this, &started] { Read(started); });
}

void FakeDaemon::Read(RankProcess& process) {
  while (true) {
    {
      std::unique_lock<std::mutex> lock(mu_);
      changed_.wait(lock, [&] { return !process.frozen; });
    }
    v1::FromTrainer message;
    const absl::StatusOr<bool> received = process.channel->Receive(message);
    const std::lock_guard<std::mutex> lock(mu_);
    if (!received.ok() || !*received) {
      process.closed = true;
      changed_.notify_all();
      return;
    }
    if (message.has_set()) {
      values_[message.set().key()] = message.set().value();
      for (auto& [rank, other] : ranks_) {
        Answer(*other, message.set().key());
      }
    } else if (message.has_get()) {
      process.asked.push_back(message.get().key());
      Answer(process, message.get().key());
    } else {
      process.said.push_back(std::move(message));
      changed_.notify_all();
    }
  }
}

// Requires mu_.
void FakeDaemon::Answer(RankProcess& process, const std::string& key) {
  const auto value = values_.find(key);
  if (value == values_.end() || std::erase(process.asked, key) == 0) {
    return;
  }
  v1::ToTrainer message;
  v1::KvValue& answer = *message.mutable_value();
  *answer.mutable_id() = assignment_.id();
  answer.set_key(key);
  answer.set_value(value->second);
  process.channel->Send(message).IgnoreError();  // a rank that is gone needs no answer
}

void FakeDaemon::SetFrozen(int rank, bool frozen) {
  const std::lock_guard<std::mutex> lock(mu_);
  ranks_.at(rank)->frozen = frozen;
  changed_.notify_all();
}

std::optional<FakeDaemon::Exit> FakeDaemon::WaitExit(int rank, absl::Duration timeout) {
  RankProcess& process = *ranks_.at(rank);
  const auto deadline = std::chrono::steady_clock::now() + absl::ToChronoNanoseconds(timeout);
  while (true) {
    int status = 0;
    if (waitpid(process.pid, &status, WNOHANG) == process.pid) {
      process.pid = -1;
      return WIFSIGNALED(status) ? Exit{.signal = WTERMSIG(status)} : Exit{.code = WEXITSTATUS(status)};
    }
    if (std::chrono::steady_clock::now() >= deadline) {
      return std::nullopt;
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
  }
}

std::vector<v1::FromTrainer> FakeDaemon::MessagesOf(int rank) {
  const std::lock_guard<std::mutex> lock(mu_);
  return ranks_.at(rank)->said;
}

void FakeDaemon::Request(int rank, v1::Desired desired, uint64_t id) {
  v1::ToTrainer message;
  message.set_request(desired);
  message.set_request_id(id);
  Send(rank, message);
}

// A rank that is gone hears nothing.
void FakeDaemon::Send(int rank, const v1::ToTrainer& message) {
  ranks_.at(rank)->channel->Send(message).IgnoreError();
}

void FakeDaemon::CloseChannel(int rank) { ranks_.at(rank)->channel->Shutdown(); }

}  // namespace tandem::trainer
