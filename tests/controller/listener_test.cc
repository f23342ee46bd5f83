// SPDX-License-Identifier: Apache-2.0
#include "controller/rpc/listener.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "platform/unix_socket.h"
#include "tests/platform/temporary_folder.h"

namespace tandem::controller {
namespace {

using ::testing::HasSubstr;

class ListenerTest : public ::testing::Test {
 protected:
  std::unique_ptr<Listener> Open() {
    absl::StatusOr<std::unique_ptr<Listener>> listener = Listener::Open("unix:" + path_);
    EXPECT_TRUE(listener.ok()) << listener.status();
    return listener.ok() ? *std::move(listener) : nullptr;
  }

  const platform::TemporaryFolder folder_;
  const std::string path_ = folder_.path() + "/socket";
};

// Both of two controllers that start at once find no other there when they begin.
TEST_F(ListenerTest, SocketInUseIsNotTaken) {
  const std::unique_ptr<Listener> first = Open();
  const absl::Status second = Listener::Open("unix:" + path_).status();
  EXPECT_TRUE(absl::IsUnavailable(second)) << second;
  EXPECT_THAT(second.message(), HasSubstr("--listen unix:" + path_ + ": another process listens there"));
  EXPECT_TRUE(platform::IsListening(path_).value());
}

// "stop what listens there" would send the reader to look for it.
TEST_F(ListenerTest, MissingFolderIsTheOnlyError) {
  const std::string address = "unix:" + folder_.path() + "/none/socket";
  EXPECT_EQ(Listener::Open(address).status().message(),
            "cannot listen on " + address + ": No such file or directory; give another --listen");
}

TEST_F(ListenerTest, WhatAnEndedOneLeftIsReplaced) {
  const std::string kept = folder_.path() + "/kept";
  {
    const std::unique_ptr<Listener> ended = Open();
    std::filesystem::rename(path_, kept);
  }
  std::filesystem::rename(kept, path_);  // as after kill -9
  ASSERT_TRUE(std::filesystem::exists(path_));
  const std::unique_ptr<Listener> next = Open();
  EXPECT_TRUE(platform::IsListening(path_).value());
}

TEST_F(ListenerTest, OnlyItsOwnSocketIsRemoved) {
  std::unique_ptr<Listener> first = Open();
  std::filesystem::remove(path_);
  std::unique_ptr<Listener> second = Open();
  first.reset();
  EXPECT_TRUE(platform::IsListening(path_).value());
  second.reset();
  EXPECT_FALSE(std::filesystem::exists(path_));
}

}  // namespace
}  // namespace tandem::controller
