// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <fcntl.h>
#include <gtest/gtest.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <fstream>
#include <iterator>
#include <string>
#include <utility>
#include <vector>

extern char** environ;

#include "tests/controller/job_client.h"
#include "tests/platform/temporary_folder.h"

namespace tandem::controller {

// A tandem-controller process that listens on a socket in its folder: the program that users run or, with a
// `failpoint`, one that dies there. `setup`: commands that a shell runs before it becomes the process, such
// as "ulimit -n 256".
class DaemonProcess {
 public:
  DaemonProcess(const std::string& folder, const std::string& failpoint,
                const std::vector<std::string>& more = {}, const std::string& setup = "") {
    std::vector<std::string> arguments;
    if (!setup.empty()) {
      arguments = {"/bin/sh", "-c", setup + "; exec \"$0\" \"$@\""};
    }
    const std::vector<std::string> own = {
        failpoint.empty() ? TANDEM_CONTROLLER_BINARY : TANDEM_CONTROLLER_WITH_FAILPOINTS,
        "--state",
        folder + "/state",
        "--listen",
        Address(folder),
        "--metrics-listen",
        "off"};
    arguments.insert(arguments.end(), own.begin(), own.end());
    if (!failpoint.empty()) {
      arguments.insert(arguments.end(), {"--failpoint", failpoint});
    }
    arguments.insert(arguments.end(), more.begin(), more.end());
    std::vector<char*> argv;
    for (std::string& argument : arguments) {
      argv.push_back(argument.data());
    }
    argv.push_back(nullptr);
    posix_spawn_file_actions_t actions;
    posix_spawn_file_actions_init(&actions);
    const std::string log = folder + "/log";
    posix_spawn_file_actions_addopen(&actions, 2, log.c_str(), O_WRONLY | O_CREAT | O_APPEND, 0600);
    EXPECT_EQ(posix_spawn(&pid_, argv[0], &actions, nullptr, argv.data(), environ), 0);
    posix_spawn_file_actions_destroy(&actions);
  }
  ~DaemonProcess() {
    if (pid_ > 0) {
      kill(pid_, SIGKILL);
      Wait();
    }
  }
  // Waits for its end, and returns the wait status.
  int Wait() {
    int status = 0;
    waitpid(std::exchange(pid_, 0), &status, 0);
    return status;
  }
  int Stop() {
    kill(pid_, SIGTERM);
    return Wait();
  }
  pid_t pid() const { return pid_; }

  static std::string Log(const std::string& folder) {
    std::ifstream file(folder + "/log");
    return std::string(std::istreambuf_iterator<char>(file), {});
  }
  static std::string Address(const std::string& folder) { return "unix:" + folder + "/socket"; }

 private:
  pid_t pid_ = 0;
};

// A controller process as users run it, and a client of it.
class DaemonTest : public ::testing::Test {
 protected:
  std::string Log() const { return DaemonProcess::Log(folder_.path()); }
  std::string StoreError() const { return client_.Ask(&v1::Jobs::Stub::GetServerInfo).store_error(); }

  const platform::TemporaryFolder folder_;
  DaemonProcess daemon_{folder_.path(), ""};
  JobClient client_{DaemonProcess::Address(folder_.path())};
};

}  // namespace tandem::controller
