// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <string>

namespace tandem::controller {

// A TCP connection to "127.0.0.1:PORT" that closes at the end.
class HttpConnection {
 public:
  explicit HttpConnection(const std::string& address) : fd_(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    sockaddr_in name{};
    name.sin_family = AF_INET;
    name.sin_port = htons(static_cast<uint16_t>(std::stoi(address.substr(address.rfind(':') + 1))));
    name.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    EXPECT_EQ(connect(fd_, reinterpret_cast<const sockaddr*>(&name), sizeof(name)), 0);
  }
  ~HttpConnection() { close(fd_); }
  HttpConnection(const HttpConnection&) = delete;
  HttpConnection& operator=(const HttpConnection&) = delete;

  void Send(const std::string& bytes) {
    EXPECT_EQ(write(fd_, bytes.data(), bytes.size()), static_cast<ssize_t>(bytes.size()));
  }
  // All that comes until the other side closes.
  std::string Read() {
    std::string out;
    std::array<char, 4096> buffer{};
    for (ssize_t n = 0; (n = read(fd_, buffer.data(), buffer.size())) > 0;) {
      out.append(buffer.data(), static_cast<size_t>(n));
    }
    return out;
  }

 private:
  const int fd_;
};

// The body that a GET of /metrics answers.
inline std::string Scrape(const std::string& address) {
  HttpConnection connection(address);
  connection.Send("GET /metrics HTTP/1.0\r\n\r\n");
  const std::string answer = connection.Read();
  return answer.substr(answer.find("\r\n\r\n") + 4);
}

}  // namespace tandem::controller
