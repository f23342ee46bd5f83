// SPDX-License-Identifier: Apache-2.0
#include "platform/unix_socket.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/un.h>

#include <cstring>
#include <string>
#include <vector>

#include "platform/regular_file.h"
#include "tests/platform/temporary_folder.h"

namespace tandem::platform {
namespace {

class UnixSocketTest : public testing::Test {
 protected:
  UnixSocketTest() { std::strcpy(name_.sun_path, path_.c_str()); }

  // A socket at path_, of which `backlog` + 1 connections wait to be accepted; more are kept waiting.
  Descriptor Listen(int backlog) const {
    Descriptor listener(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
    EXPECT_EQ(::bind(listener.get(), reinterpret_cast<const sockaddr*>(&name_), sizeof(name_)), 0);
    EXPECT_EQ(::listen(listener.get(), backlog), 0);
    return listener;
  }
  int Connect(const Descriptor& end) const {
    return ::connect(end.get(), reinterpret_cast<const sockaddr*>(&name_), sizeof(name_));
  }

  const TemporaryFolder folder_;
  const std::string path_ = folder_.path() + "/socket";
  sockaddr_un name_{.sun_family = AF_UNIX};
};

TEST_F(UnixSocketTest, OnlyAnOpenSocketIsListening) {
  EXPECT_FALSE(IsListening(path_).value());
  {
    const Descriptor listener = Listen(1);
    EXPECT_TRUE(IsListening(path_).value());
  }
  EXPECT_FALSE(IsListening(path_).value()) << "the file is there still";
  EXPECT_FALSE(IsListening(folder_.Write("file", "")).value());
}

TEST_F(UnixSocketTest, AProcessThatAcceptsNothingIsListening) {
  const Descriptor listener = Listen(0);
  std::vector<Descriptor> waiting;
  do {
    waiting.emplace_back(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  } while (Connect(waiting.back()) == 0);
  EXPECT_TRUE(IsListening(path_).value());
}

// Or its socket would be taken for one that is not in use.
TEST_F(UnixSocketTest, UnknownIsNotNo) {
  const Descriptor listener = Listen(1);
  rlimit limit{};
  ASSERT_EQ(getrlimit(RLIMIT_NOFILE, &limit), 0);
  const rlimit none{.rlim_cur = 0, .rlim_max = limit.rlim_max};
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &none), 0);
  const absl::StatusOr<bool> listening = IsListening(path_);
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &limit), 0);
  EXPECT_EQ(listening.status(), absl::UnavailableError("Too many open files"));
}

TEST_F(UnixSocketTest, OverlongPathIsNotCut) {
  name_ = {.sun_family = AF_UNIX};
  const std::string longest =
      folder_.path() + "/" + std::string(sizeof(name_.sun_path) - 2 - folder_.path().size(), 'x');
  std::strcpy(name_.sun_path, longest.c_str());
  const Descriptor listener = Listen(1);
  EXPECT_TRUE(IsListening(longest).value());
  EXPECT_FALSE(IsListening(longest + "x").value());
}

}  // namespace
}  // namespace tandem::platform
