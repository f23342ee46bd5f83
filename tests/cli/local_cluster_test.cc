// SPDX-License-Identifier: Apache-2.0
// What `up` and `run` do on this machine before and around the daemons, which are shell scripts here.
#include "cli/cluster/local_cluster.h"

#include <arpa/inet.h>
#include <gmock/gmock.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <csignal>
#include <filesystem>
#include <fstream>
#include <semaphore>
#include <thread>

#include "absl/synchronization/notification.h"
#include "absl/time/clock.h"
#include "cli/cluster/daemon_process.h"
#include "cli/cluster/state_folder.h"
#include "cli/terminal/interrupts.h"
#include "tests/cli/command_fixture.h"

namespace tandem::cli {
namespace {

using testing::HasSubstr;

class LocalClusterTest : public CommandTest {
 protected:
  LocalClusterTest() {
    environment_.xdg_state_home = folder_ + "/state";
    environment_.tandem_addr.clear();
    std::filesystem::create_directories(folder_ + "/bin");
  }

  void Script(const std::string& name, const std::string& text) {
    const std::string path = File("bin/" + name, "#!/bin/sh\n" + text);
    ::chmod(path.c_str(), 0755);
  }

  DaemonProcess StartScript(const std::string& text) {
    Script("daemon", text);
    absl::StatusOr<DaemonProcess> daemon = DaemonProcess::Start({.name = "the daemon",
                                                                 .program = folder_ + "/bin/daemon",
                                                                 .arguments = {"one two"},
                                                                 .log = folder_ + "/log"});
    EXPECT_TRUE(daemon.ok()) << daemon.status();
    return *std::move(daemon);
  }
};

TEST_F(LocalClusterTest, DaemonHasItsOwnGroupAndLog) {
  DaemonProcess daemon = StartScript("echo \"$1\" started; ps -o pgid= -p $$ | tr -d ' '; echo $$; exit 3\n");
  ASSERT_TRUE(daemon.WaitEnd(absl::Seconds(10)));
  EXPECT_EQ(daemon.EndText(), "the daemon ended with exit code 3");
  const std::string tail = daemon.LogTail(5);
  EXPECT_EQ(tail.substr(0, 18), "  one two started\n");
  std::istringstream lines(tail);
  std::string first, group, pid;
  std::getline(lines, first);
  std::getline(lines, group);
  std::getline(lines, pid);
  EXPECT_EQ(group, pid);
}

TEST_F(LocalClusterTest, ADaemonIsKilledWithItsOwner) {
  DaemonProcess daemon = StartScript("sleep 100\n");
  daemon.Signal(SIGKILL);
  ASSERT_TRUE(daemon.WaitEnd(absl::Seconds(10)));
  EXPECT_EQ(daemon.EndText(), "the daemon was killed by signal 9 (SIGKILL)");
}

TEST_F(LocalClusterTest, MissingDaemonIsOneLine) {
  EXPECT_EQ(Tandem({"up", "--metrics-listen", "off"}), kFailed);
  EXPECT_EQ(console_.err,
            "tandem: up: cannot start the controller: " + folder_ +
                "/bin/tandem-controller: No such file or directory; name the folder that has it with "
                "--bin-dir\n");
  EXPECT_EQ(Tandem({"up", "--metrics-listen", "off", "--bin-dir", "/\x1b[31m\n"}), kFailed);
  EXPECT_EQ(
      console_.err,
      "tandem: up: cannot start the controller: /\\x1b[31m\\n/tandem-controller: No such file or directory; "
      "name the folder that has it with --bin-dir\n");
  environment_.xdg_state_home = "/proc/\x1b[31m";
  EXPECT_EQ(Tandem({"up", "--metrics-listen", "off"}), kFailed);
  EXPECT_EQ(console_.err.rfind("tandem: up: cannot create the folder /proc/\\x1b[31m/tandem/up: ", 0), 0u)
      << console_.err;
}

TEST_F(LocalClusterTest, FailedDaemonIsReportedWithItsLog) {
  Script("tandem-controller", "echo 'state folder is of a newer build' >&2; exit 1\n");
  EXPECT_EQ(Tandem({"up", "--metrics-listen", "off"}), kFailed);
  EXPECT_EQ(console_.err, "tandem: up: the controller ended with exit code 1; the end of " + folder_ +
                              "/state/tandem/up/logs/controller.log:\n  state folder is of a newer build\n");
  Script("tandem-controller", "exit 1\n");
  EXPECT_EQ(Tandem({"up", "--metrics-listen", "off"}), kFailed);
  EXPECT_EQ(console_.err, "tandem: up: the controller ended with exit code 1; its log is empty: " + folder_ +
                              "/state/tandem/up/logs/controller.log\n");
}

TEST_F(LocalClusterTest, ASecondUpNamesTheFirst) {
  const std::string up = UpFolder(folder_ + "/state/tandem");
  absl::StatusOr<FolderLock> lock = FolderLock::Acquire(up);
  ASSERT_TRUE(lock.ok());
  ASSERT_TRUE(lock->Publish("unix:/tmp/x/controller").ok());
  EXPECT_EQ(Tandem({"up"}), kFailed);
  EXPECT_EQ(console_.err,
            absl::StrCat("tandem: up: another `tandem up` is running: pid ", ::getpid(),
                         ", socket unix:/tmp/x/controller; use it, or end it with Ctrl-C there or `kill ",
                         ::getpid(), "`\n"));
}

TEST_F(LocalClusterTest, UpsSocketIsTheDefaultAddress) {
  const std::string up = UpFolder(folder_ + "/state/tandem");
  {
    absl::StatusOr<FolderLock> lock = FolderLock::Acquire(up);
    ASSERT_TRUE(lock.ok());
    ASSERT_TRUE(lock->Publish(server_->address()).ok());
    EXPECT_EQ(ResolveAddress({}, environment_)->target, server_->address());
    EXPECT_EQ(Tandem({"get", "jobs", "-o", "json"}), kOk);
    environment_.tandem_addr = "a:1";
    EXPECT_EQ(ResolveAddress({}, environment_)->target, "a:1");
    EXPECT_EQ(ResolveAddress({.addr = "b:2"}, environment_)->target, "b:2");
    environment_.tandem_addr.clear();
  }
  EXPECT_EQ(ResolveAddress({}, environment_)->target, kDefaultAddress);
}

TEST_F(LocalClusterTest, LookingNeverBlocksAnUp) {
  const std::string up = UpFolder(folder_ + "/state/tandem");
  std::jthread asking([&up](std::stop_token stop) {
    while (!stop.stop_requested()) {
      FindRunningUp(up);
    }
  });
  for (int i = 0; i < 20'000; ++i) {
    const absl::StatusOr<FolderLock> lock = FolderLock::Acquire(up);
    ASSERT_TRUE(lock.ok()) << lock.status();
  }
}

TEST_F(LocalClusterTest, ATakenMetricsPortIsOneLine) {
  const int fd = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in name = {};
  name.sin_family = AF_INET;
  name.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof(name);
  ASSERT_EQ(::bind(fd, reinterpret_cast<const sockaddr*>(&name), size), 0);
  ASSERT_EQ(::listen(fd, 1), 0);
  ASSERT_EQ(::getsockname(fd, reinterpret_cast<sockaddr*>(&name), &size), 0);
  const std::string taken = absl::StrCat("127.0.0.1:", ntohs(name.sin_port));
  EXPECT_EQ(Tandem({"up", "--metrics-listen", taken}), kFailed);
  EXPECT_EQ(console_.err,
            "tandem: up: cannot listen for Prometheus on " + taken +
                ": Address already in use; choose another --metrics-listen, or --metrics-listen off\n");
  ::close(fd);
  EXPECT_TRUE(CanListen(taken).ok());
}

TEST_F(LocalClusterTest, RunThatWouldWaitForeverIsRefused) {
  const std::string file = GoodJobFile();
  EXPECT_EQ(Tandem({"run", "-f", file, "--workers", "1", "--slots", "1"}), kUsage);
  EXPECT_EQ(console_.err,
            "tandem: run: the job has 2 ranks, but 1 worker with 1 CPU slot can only take 1, so it "
            "would wait forever; give more --workers or --slots, or omit both\n");
}

TEST_F(LocalClusterTest, AnInterruptWhileARunStartsIsAcknowledged) {
  Script("tandem-controller", "sleep 100\n");
  const std::string runs = folder_ + "/state/tandem/runs";
  std::jthread user([&runs] {
    const auto started = [&runs] {
      std::error_code error;
      for (const auto& run : std::filesystem::directory_iterator(runs, error)) {
        if (std::filesystem::exists(run.path() / "logs", error)) {
          return true;
        }
      }
      return false;
    };
    while (!started()) {
      std::this_thread::yield();
    }
    ::kill(::getpid(), SIGINT);
  });
  EXPECT_EQ(Tandem({"run", "-f", GoodJobFile()}), kCancelled);
  EXPECT_THAT(console_.err, HasSubstr("tandem: run: interrupted; nothing was submitted\n"));
}

// The second comes before the first is looked at, and ends everything all the same.
TEST_F(LocalClusterTest, TwoInterruptsAtOnceKillARun) {
  Script("tandem-controller",
         "ln -s " + folder_ + "/controller \"${4#unix:}\"; exec sleep 100\n");  // --listen
  Script("tandem-worker", "exec sleep 100\n");
  v1::Worker& worker = server_->workers.emplace_back();
  worker.set_id("local-1");
  worker.set_connected(true);
  const auto ended = std::make_shared<absl::Notification>();  // the call's, too, which may outlive the test
  server_->watches.push_back([ended](const v1::WatchRequest&, grpc::ServerWriter<v1::WatchResponse>& writer) {
    writer.Write(Snapshot(SampleJob(v1::JOB_STATE_RUNNING, 1)));
    ::raise(SIGINT);
    ::raise(SIGINT);
    ended->WaitForNotification();
    return grpc::Status::OK;
  });
  EXPECT_EQ(Tandem({"run", "-f", GoodJobFile()}), kCancelled);
  EXPECT_EQ(console_.err.substr(console_.err.find("\ntandem: run: killed")), "\ntandem: run: killed\n");
  EXPECT_TRUE(server_->cancelled.empty());
  ended->Notify();
}

TEST_F(LocalClusterTest, LongStatePathsPutSocketsInTmp) {
  for (const std::string& name : {std::string(90, 'x'), std::string("a b%20c")}) {
    const std::string folder = folder_ + "/" + name;
    std::filesystem::create_directories(folder);
    const absl::StatusOr<SocketFolder> socket = SocketFolder::Make(folder);
    ASSERT_TRUE(socket.ok()) << socket.status();
    EXPECT_TRUE(socket->socket().starts_with("/tmp/tandem-")) << socket->socket();
    EXPECT_TRUE(std::filesystem::is_empty(folder));
  }
}

TEST_F(LocalClusterTest, ASocketOfAKilledProcessIsReplaced) {
  std::filesystem::create_directories(folder_ + "/up/socket");
  std::ofstream(folder_ + "/up/socket/controller") << "";
  const absl::StatusOr<SocketFolder> socket = SocketFolder::Make(folder_ + "/up");
  ASSERT_TRUE(socket.ok()) << socket.status();
  EXPECT_EQ(socket->socket(), folder_ + "/up/socket/controller");
  EXPECT_FALSE(std::filesystem::exists(socket->socket()));
}

TEST_F(LocalClusterTest, SocketsLieInATemporaryPrivateFolder) {
  std::string path;
  {
    const absl::StatusOr<SocketFolder> socket = SocketFolder::Make(folder_);
    ASSERT_TRUE(socket.ok());
    path = std::filesystem::path(socket->socket()).parent_path();
    struct stat mode = {};
    ASSERT_EQ(::stat(path.c_str(), &mode), 0);
    EXPECT_EQ(mode.st_mode & 0777, 0700u);
  }
  EXPECT_FALSE(std::filesystem::exists(path));
}

TEST_F(LocalClusterTest, LastTwentyRunsAreKept) {
  const std::string root = folder_ + "/state/tandem";
  const absl::StatusOr<std::string> first = MakeRunFolder(root, Moment(0), "abc");
  ASSERT_TRUE(first.ok());
  const absl::StatusOr<FolderLock> in_use = FolderLock::Acquire(*first);
  ASSERT_TRUE(in_use.ok());
  for (int i = 1; i < 25; ++i) {
    ASSERT_TRUE(MakeRunFolder(root, Moment(i), "abc").ok());
  }
  EXPECT_TRUE(std::filesystem::exists(*first));
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(root + "/runs"), {}), kKeptRuns + 1);
}

TEST(InterruptsTest, CountsInsteadOfDying) {
  Interrupts interrupts;
  EXPECT_EQ(interrupts.Count(), 0);
  ::raise(SIGINT);
  EXPECT_EQ(interrupts.Count(), 1);
  ::raise(SIGTERM);
  EXPECT_EQ(interrupts.Count(), 2);
  EXPECT_EQ(Interrupts().Count(), 0);
}

TEST(InterruptsDeathTest, TheThirdKills) {
  EXPECT_EXIT(
      {
        Interrupts interrupts;
        ::raise(SIGINT);
        ::raise(SIGTERM);
        ::raise(SIGINT);
        ::_exit(interrupts.Count());
      },
      testing::KilledBySignal(SIGINT), "");
}

TEST(InterruptsTest, CountsOnThreadsThatWereThereBefore) {
  std::binary_semaphore made{0};
  std::jthread older([&made] {
    made.acquire();
    ::raise(SIGINT);  // delivered to this thread
  });
  Interrupts interrupts;
  made.release();
  older.join();
  EXPECT_EQ(interrupts.Count(), 1);
}

TEST(InterruptsTest, WhatTheCallerIgnoredStaysIgnored) {
  std::signal(SIGHUP, SIG_IGN);
  {
    Interrupts interrupts;
    ::raise(SIGHUP);
    EXPECT_EQ(interrupts.Count(), 0);
  }
  std::signal(SIGHUP, SIG_DFL);
}

TEST(WorkersTextTest, CountsAreSingularOrPlural) {
  EXPECT_EQ(WorkersText(1, 1, 0), "1 worker with 1 CPU slot");
  EXPECT_EQ(WorkersText(1, 2, 0), "1 worker with 2 CPU slots");
  EXPECT_EQ(WorkersText(2, 1, 0), "2 workers with 1 CPU slot each");
}

TEST(WorkersTextTest, GpusAreNamedPerMachine) {
  EXPECT_EQ(WorkersText(1, 1, 1), "1 worker with 1 GPU slot and 1 CPU slot");
  EXPECT_EQ(WorkersText(1, 2, 8), "1 worker with 8 GPU slots and 2 CPU slots");
  EXPECT_EQ(WorkersText(2, 4, 8), "2 workers with 4 CPU slots each, and 8 GPU slots that they share");
}

}  // namespace
}  // namespace tandem::cli
