// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <gtest/gtest.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <cstring>
#include <string>
#include <thread>

#include "absl/time/clock.h"

namespace tandem::cli {

// A socket that takes connections at once, like any that is listened on, but first speaks after `delay`: from
// then on each is connected to the socket `to`. What a client meets whose controller is busy, or far away.
class SlowDoor {
 public:
  SlowDoor(const std::string& path, const std::string& to, absl::Duration delay)
      : listening_(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    const sockaddr_un name = NameOf(path);
    EXPECT_EQ(::bind(listening_, reinterpret_cast<const sockaddr*>(&name), sizeof(name)), 0);
    EXPECT_EQ(::listen(listening_, 8), 0);
    accepting_ = std::jthread([this, to, delay] {
      for (int client = 0; (client = ::accept(listening_, nullptr, nullptr)) >= 0;) {
        std::thread([client, to, delay] { Connect(client, to, delay); }).detach();
      }
    });
  }
  ~SlowDoor() {
    ::shutdown(listening_, SHUT_RDWR);
    accepting_.join();
    ::close(listening_);
  }

 private:
  static sockaddr_un NameOf(const std::string& path) {
    sockaddr_un name = {};
    name.sun_family = AF_UNIX;
    std::strncpy(name.sun_path, path.c_str(), sizeof(name.sun_path) - 1);
    return name;
  }

  static void Connect(int client, const std::string& to, absl::Duration delay) {
    absl::SleepFor(delay);
    const int server = ::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    const sockaddr_un name = NameOf(to);
    if (::connect(server, reinterpret_cast<const sockaddr*>(&name), sizeof(name)) == 0) {
      std::jthread back([=] { Copy(server, client); });
      Copy(client, server);
    }
    ::close(client);
    ::close(server);
  }

  static void Copy(int from, int to) {
    char buffer[4096];
    for (ssize_t size = 0; (size = ::read(from, buffer, sizeof(buffer))) > 0;) {
      if (::send(to, buffer, static_cast<size_t>(size), MSG_NOSIGNAL) != size) {
        break;
      }
    }
    ::shutdown(from, SHUT_RD);
    ::shutdown(to, SHUT_WR);
  }

  const int listening_;
  std::jthread accepting_;
};

}  // namespace tandem::cli
