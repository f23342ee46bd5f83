// SPDX-License-Identifier: Apache-2.0
#include "worker/spawner.h"

#include <fcntl.h>
#include <grp.h>
#include <linux/close_range.h>
#include <pwd.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <future>

#include "absl/strings/str_cat.h"
#include "link/trainer_args.h"
#include "platform/regular_file.h"
#include "platform/status_macros.h"
#include "platform/system_error.h"

namespace tandem::worker {
namespace {

using platform::Descriptor;

constexpr char kOomScoreFile[] = "/proc/self/oom_score_adj";
constexpr int kOomScoreAboveWorker = 500;
constexpr int kMostOomScore = 1000;

// Everything that the child needs, made before the fork: after it only async-signal-safe calls are allowed.
struct ChildPlan {
  const char* program = nullptr;
  char* const* argv = nullptr;
  pid_t parent = 0;
  int null_fd = -1;
  int log_fd = -1;
  int control_fd = -1;
  int page_fd = -1;
  int group_fd = -1;              // -1: the child stays in the parent's group
  const char* oom_score = "";     // written to the child's oom_score_adj
  int error_fd = -1;              // closed by exec; carries a ChildFailure if exec does not happen
  const RunAs* run_as = nullptr;  // null: the daemon's own user
};

// Why the program could not be started.
struct ChildFailure {
  int error = 0;          // errno
  const char* what = "";  // a literal, so parent and child have it at one address
};

[[noreturn]] void FailChild(const ChildPlan& plan, const char* what = "") {
  const ChildFailure failure{.error = errno, .what = what};
  [[maybe_unused]] const ssize_t written = write(plan.error_fd, &failure, sizeof(failure));
  _exit(127);
}

// Becomes the user for good, so that programs started by the rank gain no rights. Makes system calls
// directly: those of the C library change all threads of a process under a lock that another thread may have
// held at the fork.
bool Become(const RunAs& who) {
  // Only root may set groups; any other user has its own already.
  const bool is_root = geteuid() == 0;
  return (!is_root || syscall(SYS_setgroups, who.groups.size(), who.groups.data()) == 0) &&
         (!is_root || syscall(SYS_setresgid, who.group, who.group, who.group) == 0) &&
         syscall(SYS_setresuid, who.user, who.user, who.user) == 0 &&
         prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0;
}

// Lets the kernel kill a rank first when memory runs out, instead of the worker with all its jobs. If the
// file cannot be written, nothing changes.
void OfferToOomKiller(const char* score) {
  const int fd = open(kOomScoreFile, O_WRONLY | O_CLOEXEC);
  if (fd >= 0) {
    [[maybe_unused]] const ssize_t written = write(fd, score, strlen(score));
    close(fd);
  }
}

// Returns the score of ranks, which is above that of this process.
std::string OomScoreOfRanks() {
  int own = 0;
  std::ifstream(kOomScoreFile) >> own;
  return absl::StrCat(std::min(own + kOomScoreAboveWorker, kMostOomScore));
}

[[noreturn]] void RunChild(const ChildPlan& plan) {
  // Done before the process runs as another user: that user may not write these files.
  OfferToOomKiller(plan.oom_score);
  if (plan.group_fd >= 0) {  // an error is ignored
    [[maybe_unused]] const ssize_t written = write(plan.group_fd, "0", 1);
  }
  // Done before the death signal is set, because the kernel clears it when the process becomes another
  // user's.
  if (plan.run_as != nullptr && !Become(*plan.run_as)) {
    FailChild(plan);
  }
  if (prctl(PR_SET_PDEATHSIG, SIGKILL) != 0) {
    FailChild(plan);
  }
  if (getppid() != plan.parent) {
    _exit(127);  // the daemon died before the call above
  }
  setpgid(0, 0);
  if (chdir("/") != 0) {
    FailChild(plan, " in its working directory /");
  }
  signal(SIGPIPE, SIG_DFL);  // exec would keep it ignored
  sigset_t none;
  sigemptyset(&none);
  if (sigprocmask(SIG_SETMASK, &none, nullptr) != 0) {
    FailChild(plan);
  }
  if (dup2(plan.null_fd, STDIN_FILENO) < 0 || dup2(plan.log_fd, STDOUT_FILENO) < 0 ||
      dup2(plan.log_fd, STDERR_FILENO) < 0) {
    FailChild(plan);
  }
  // All descriptors should be close-on-exec already; this also covers libraries that forget it.
  close_range(STDERR_FILENO + 1, ~0U, CLOSE_RANGE_CLOEXEC);
  if (fcntl(plan.control_fd, F_SETFD, 0) != 0 || fcntl(plan.page_fd, F_SETFD, 0) != 0) {
    FailChild(plan);
  }
  execv(plan.program, plan.argv);
  FailChild(plan);
}

void Reap(pid_t pid) {
  while (waitpid(pid, nullptr, 0) < 0 && errno == EINTR) {
  }
}

absl::StatusOr<SpawnedProcess> ForkAndExec(const SpawnRequest& request, const RunAs* run_as) {
  const Descriptor null(open("/dev/null", O_RDONLY | O_CLOEXEC));
  if (null.get() < 0) {
    return platform::SystemError(errno, "open /dev/null");
  }
  const absl::StatusOr<Descriptor> log =
      platform::OpenRegularFile(request.log_file, O_WRONLY | O_CREAT | O_APPEND, 0644);
  if (!log.ok()) {
    const absl::string_view remedy = platform::RemedyOf(log.status());
    const bool of_folder = !absl::IsOutOfRange(log.status());  // not about the number of open files
    return absl::Status(
        log.status().code(),
        absl::StrCat(log.status().message(), "; ", of_folder ? "its log lies in the worker's --state: " : "",
                     remedy.empty() ? "repair that file system" : remedy));
  }
  int ends[2];
  if (pipe2(ends, O_CLOEXEC) != 0) {
    return platform::SystemError(errno, "make a pipe");
  }
  const Descriptor read_end(ends[0]);
  Descriptor write_end(ends[1]);

  const pid_t parent = getpid();
  std::vector<std::string> args =
      link::TrainerArgs{.control_fd = request.control_fd, .page_fd = request.page_fd, .parent_pid = parent}
          .ToArgv(request.program);
  std::vector<char*> argv;
  for (std::string& arg : args) {
    argv.push_back(arg.data());
  }
  argv.push_back(nullptr);
  const std::string oom_score = OomScoreOfRanks();
  const ChildPlan plan{.program = request.program.c_str(),
                       .argv = argv.data(),
                       .parent = parent,
                       .null_fd = null.get(),
                       .log_fd = log->get(),
                       .control_fd = request.control_fd,
                       .page_fd = request.page_fd,
                       .group_fd = request.group_fd,
                       .oom_score = oom_score.c_str(),
                       .error_fd = write_end.get(),
                       .run_as = run_as};

  // _Fork runs no fork handlers; gRPC's would wait for its other threads.
  const pid_t pid = _Fork();
  if (pid == 0) {
    RunChild(plan);
  }
  if (pid < 0) {
    return platform::SystemError(errno, "fork");
  }
  write_end = Descriptor();
  ChildFailure failure;
  ssize_t got = 0;
  do {
    got = read(read_end.get(), &failure, sizeof(failure));
  } while (got < 0 && errno == EINTR);
  if (got != 0) {
    Reap(pid);
    return absl::ErrnoToStatus(failure.error, absl::StrCat("start ", request.program, failure.what));
  }
  SpawnedProcess process{.id = {.pid = pid}, .pidfd = static_cast<int>(syscall(SYS_pidfd_open, pid, 0))};
  if (process.pidfd < 0) {
    const absl::Status status = platform::SystemError(errno, "open a pidfd");
    kill(pid, SIGKILL);
    Reap(pid);
    return status;
  }
  // The child may have died already, but its pid is not reused before it is reaped.
  if (const absl::StatusOr<ProcessId> id = Identify(pid); id.ok()) {
    process.id = *id;
  }
  return process;
}

}  // namespace

absl::StatusOr<SpawnedProcess> Spawner::Spawn(const SpawnRequest& request) {
  std::promise<absl::StatusOr<SpawnedProcess>> promise;
  std::future<absl::StatusOr<SpawnedProcess>> result = promise.get_future();
  thread_.Run([&] { promise.set_value(ForkAndExec(request, run_as_ ? &*run_as_ : nullptr)); });
  return result.get();
}

absl::StatusOr<RunAs> FindUser(const std::string& name) {
  std::array<char, 16384> buffer{};
  passwd entry{};
  passwd* found = nullptr;
  getpwnam_r(name.c_str(), &entry, buffer.data(), buffer.size(), &found);
  if (found == nullptr) {
    return absl::NotFoundError(
        absl::StrCat("--user ", name, ": this machine has no such user; make it, or name another"));
  }
  if (geteuid() != 0 && geteuid() != found->pw_uid) {
    return absl::PermissionDeniedError(absl::StrCat(
        "--user ", name, ": only root may run jobs as another user; start the worker as root, or as ", name));
  }
  RunAs out{.user = found->pw_uid, .group = found->pw_gid, .groups = {}};
  int count = 64;
  do {
    out.groups.resize(static_cast<size_t>(count));
  } while (getgrouplist(name.c_str(), out.group, out.groups.data(), &count) < 0);
  out.groups.resize(static_cast<size_t>(count));
  return out;
}

}  // namespace tandem::worker
