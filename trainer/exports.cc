// SPDX-License-Identifier: Apache-2.0
#include "trainer/exports.h"

#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <filesystem>
#include <utility>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "checkpoint/export_weights.h"
#include "checkpoint/folder.h"
#include "checkpoint/work_together.h"
#include "platform/clock.h"
#include "platform/files.h"
#include "platform/log.h"
#include "platform/regular_file.h"
#include "platform/system_error.h"
#include "proto/names.h"

namespace tandem::trainer {
namespace {

constexpr int kNice = 10;
constexpr absl::Duration kMostWait = absl::Hours(1);  // at the end of a job
constexpr size_t kMostOutputBytes = 64 << 10;         // that are kept of what the program says: the last ones

// All that is written to a pipe until its other end is closed.
std::string ReadToEnd(int fd) {
  std::string output;
  char buffer[4096];
  while (true) {
    const ssize_t got = read(fd, buffer, sizeof(buffer));
    if (got < 0 && errno == EINTR) {
      continue;
    }
    if (got <= 0) {
      absl::StripTrailingAsciiWhitespace(&output);
      return output;
    }
    output.append(buffer, static_cast<size_t>(got));
    if (output.size() > kMostOutputBytes) {
      output.erase(0, output.size() - kMostOutputBytes);
    }
  }
}

// Starts a program whose output goes to `output`. Returns 0 or an errno.
int Spawn(std::vector<std::string> arguments, int output, pid_t& pid) {
  std::vector<char*> argv;
  for (std::string& argument : arguments) {
    argv.push_back(argument.data());
  }
  argv.push_back(nullptr);
  // The trainer ignores both, and a program keeps what is ignored.
  sigset_t defaults;
  sigemptyset(&defaults);
  sigaddset(&defaults, SIGPIPE);
  sigaddset(&defaults, SIGTERM);
  posix_spawnattr_t attributes;
  posix_spawnattr_init(&attributes);
  posix_spawnattr_setsigdefault(&attributes, &defaults);
  posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSIGDEF);
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_addopen(&actions, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
  posix_spawn_file_actions_adddup2(&actions, output, STDOUT_FILENO);
  posix_spawn_file_actions_adddup2(&actions, output, STDERR_FILENO);
  posix_spawn_file_actions_addclosefrom_np(&actions, STDERR_FILENO + 1);  // the socket and the page, too
  // It does not copy this process's page tables, as a fork does.
  const int error = posix_spawn(&pid, argv[0], &actions, &attributes, argv.data(), environ);
  posix_spawn_file_actions_destroy(&actions);
  posix_spawnattr_destroy(&attributes);
  return error;
}

}  // namespace

Exports::Exports(v1::Exports options, std::string program, Failed failed)
    : options_(std::move(options)),
      program_(std::move(program)),
      failed_(std::move(failed)),
      thread_([this] { Run(); }) {
  pthread_setname_np(thread_.native_handle(), "export");
}

Exports::~Exports() { End("the job ended before"); }

void Exports::Committed(int64_t step, const std::string& folder) {
  if (step % options_.every_steps() != 0) {
    return;
  }
  const absl::MutexLock lock(&mu_);
  pending_.push_back({.step = step, .folder = folder});
  changed_.NotifyAll();
}

std::set<int64_t> Exports::Pending() const {
  const absl::MutexLock lock(&mu_);
  std::set<int64_t> steps;
  for (const Export& one : pending_) {
    steps.insert(one.step);
  }
  return steps;
}

bool Exports::Await(absl::Duration wait) {
  const absl::MutexLock lock(&mu_);
  return changed_.AwaitFor(mu_, wait,
                           [this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) { return pending_.empty(); });
}

void Exports::End(const std::string& reason) {
  {
    const absl::MutexLock lock(&mu_);
    if (ending_.empty()) {
      ending_ = reason;
    }
    if (child_ != 0) {
      kill(child_, SIGKILL);
    }
    changed_.NotifyAll();
  }
  if (thread_.joinable()) {
    thread_.join();
  }
  std::deque<Export> left;
  {
    const absl::MutexLock lock(&mu_);
    left.swap(pending_);
  }
  for (const Export& one : left) {
    failed_(one.step, reason);
  }
}

void Exports::Run() {
  setpriority(PRIO_PROCESS, 0,
              kNice);  // of this thread alone; a child gets it from the thread that starts it
  while (true) {
    Export next;
    {
      const absl::MutexLock lock(&mu_);
      while (pending_.empty() && ending_.empty()) {
        changed_.Wait(mu_);
      }
      if (!ending_.empty()) {
        return;
      }
      next = pending_.front();
    }
    const std::string to = absl::StrCat(options_.to(), "/", checkpoint::StepName(next.step));
    RemoveUnfinished(to);
    std::string error = RunProgram(next.folder, to);
    if (error.empty()) {
      platform::Log(platform::LogLevel::kInfo, "exported a checkpoint",
                    {{"checkpoint", next.folder}, {"to", to}});
    } else {
      {
        const absl::MutexLock lock(&mu_);
        if (!ending_.empty()) {
          error = ending_;
        }
      }
      RemoveUnfinished(to);
      failed_(next.step, error);
    }
    const absl::MutexLock lock(&mu_);
    pending_.pop_front();
    changed_.NotifyAll();
  }
}

std::string Exports::RunProgram(const std::string& folder, const std::string& to) {
  int ends[2];
  if (pipe2(ends, O_CLOEXEC) != 0) {
    return std::string(platform::SystemError(errno, "make a pipe").message());
  }
  const platform::Descriptor read_end(ends[0]);
  pid_t child = 0;
  {
    const platform::Descriptor write_end(ends[1]);
    const absl::MutexLock lock(&mu_);
    if (!ending_.empty()) {
      return ending_;
    }
    const int error =
        Spawn({program_, "export", folder, "--to", to, "--dtype", proto::LowerName(options_.dtype())},
              write_end.get(), child);
    if (error != 0) {
      return std::string(platform::SystemError(error, absl::StrCat("start ", program_)).message());
    }
    child_ = child;
  }
  const std::string output = ReadToEnd(read_end.get());
  siginfo_t ended{};
  while (waitid(P_PID, static_cast<id_t>(child), &ended, WEXITED | WNOWAIT) != 0 && errno == EINTR) {
  }
  int status = 0;
  {
    // Until it is reaped, no other process has its number, and End may use it.
    const absl::MutexLock lock(&mu_);
    waitpid(child, &status, 0);
    child_ = 0;
  }
  if (!output.empty()) {
    platform::Log(platform::LogLevel::kInfo, "output of tandem export",
                  {{"checkpoint", folder}, {"output", output}});
  }
  if (WIFSIGNALED(status)) {
    return absl::StrCat("tandem export was killed by signal ", WTERMSIG(status));
  }
  if (WEXITSTATUS(status) == 0) {
    return "";
  }
  return output.empty() ? absl::StrCat("tandem export ended with ", WEXITSTATUS(status))
                        : output.substr(output.rfind('\n') + 1);
}

void Exports::RemoveUnfinished(const std::string& to) {
  platform::Files& files = platform::SystemFiles();
  const absl::StatusOr<std::vector<std::string>> names =
      files.List(std::filesystem::path(to).parent_path().string());
  const std::string unfinished =
      absl::StrCat(std::filesystem::path(to).filename().string(), checkpoint::kUnfinishedExport);
  for (const std::string& name : names.ok() ? *names : std::vector<std::string>()) {
    if (name.starts_with(unfinished)) {
      files.RemoveAll((std::filesystem::path(to).parent_path() / name).string()).IgnoreError();
    }
  }
}

void FinishExports(comm::Communicator& comm, Exports* exports, const std::function<void()>& moved) {
  const absl::Time end = platform::SteadyClock().Now() + kMostWait;
  const auto are_pending = [&] {
    return exports != nullptr && !exports->Await(absl::Seconds(1)) && platform::SteadyClock().Now() < end;
  };
  while (checkpoint::TextOfRankZero(comm, are_pending() ? "pending" : "") != "") {
    moved();
  }
  if (exports != nullptr) {
    exports->End("it took too long after the last step");
  }
}

}  // namespace tandem::trainer
