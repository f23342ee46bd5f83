// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <string>

namespace tandem::controller {

// A TCP connection over loopback to the port of "HOST:PORT", by IPv6 if HOST is in brackets.
class HttpConnection {
 public:
  explicit HttpConnection(const std::string& address)
      : fd_(socket(address.starts_with('[') ? AF_INET6 : AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    const uint16_t port = htons(static_cast<uint16_t>(std::stoi(address.substr(address.rfind(':') + 1))));
    sockaddr_in v4{
        .sin_family = AF_INET, .sin_port = port, .sin_addr = {htonl(INADDR_LOOPBACK)}, .sin_zero = {}};
    sockaddr_in6 v6{};
    v6.sin6_family = AF_INET6;
    v6.sin6_port = port;
    v6.sin6_addr = in6addr_loopback;
    EXPECT_EQ(address.starts_with('[') ? connect(fd_, reinterpret_cast<const sockaddr*>(&v6), sizeof(v6))
                                       : connect(fd_, reinterpret_cast<const sockaddr*>(&v4), sizeof(v4)),
              0);
  }
  ~HttpConnection() { close(fd_); }
  HttpConnection(const HttpConnection&) = delete;
  HttpConnection& operator=(const HttpConnection&) = delete;

  void Send(const std::string& bytes) {
    EXPECT_EQ(send(fd_, bytes.data(), bytes.size(), MSG_NOSIGNAL), static_cast<ssize_t>(bytes.size()));
  }
  // False if the other side has closed the connection.
  bool IsOpen() {
    char byte = 0;
    return recv(fd_, &byte, 1, MSG_DONTWAIT | MSG_PEEK) < 0 && (errno == EAGAIN || errno == EWOULDBLOCK);
  }
  // Reads until the other side closes.
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

// Returns the body of a GET of /metrics.
inline std::string Scrape(const std::string& address) {
  HttpConnection connection(address);
  connection.Send("GET /metrics HTTP/1.0\r\n\r\n");
  const std::string answer = connection.Read();
  return answer.substr(answer.find("\r\n\r\n") + 4);
}

}  // namespace tandem::controller
