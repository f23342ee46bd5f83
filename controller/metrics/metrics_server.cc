// SPDX-License-Identifier: Apache-2.0
#include "controller/metrics/metrics_server.h"

#include <arpa/inet.h>
#include <prometheus/exposer.h>
#include <sys/socket.h>
#include <unistd.h>

#include <atomic>
#include <exception>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"

namespace tandem::controller {
namespace {

// A connection from this machine, which is closed at once.
void Connect(int port) {
  sockaddr_in name{};
  name.sin_family = AF_INET;
  name.sin_port = htons(static_cast<uint16_t>(port));
  name.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  if (fd >= 0) {
    static_cast<void>(connect(fd, reinterpret_cast<const sockaddr*>(&name), sizeof(name)));
    close(fd);
  }
}

}  // namespace

absl::StatusOr<std::unique_ptr<MetricsServer>> MetricsServer::Start(
    const std::string& address, std::shared_ptr<prometheus::Collectable> metrics) {
  const size_t colon = address.rfind(':');
  const std::string host = address.substr(0, colon);
  const std::vector<std::string> options = {
      "listening_ports", host.empty() ? address.substr(colon + 1) : address,
      // Each connection holds a thread until it is answered or its time is up. 128 threads cost 5 MB.
      "num_threads", "128", "request_timeout_ms", "500",
      // Otherwise a connection holds its thread between two requests too.
      "enable_keep_alive", "no"};
  try {
    auto exposer = std::make_unique<prometheus::Exposer>(options);
    exposer->RegisterCollectable(metrics);
    const int port = exposer->GetListeningPorts().at(0);
    return std::unique_ptr<MetricsServer>(
        new MetricsServer(absl::StrCat(host, ":", port), port, std::move(exposer), std::move(metrics)));
  } catch (const std::exception&) {  // its text says only that the options are wrong
    return absl::UnavailableError(
        absl::StrCat("cannot serve metrics on ", address,
                     ": the address is taken, or not one of this machine; give another --metrics-listen, or "
                     "--metrics-listen=off"));
  }
}

MetricsServer::MetricsServer(std::string address, int port, std::unique_ptr<prometheus::Exposer> exposer,
                             std::shared_ptr<prometheus::Collectable> metrics)
    : address_(std::move(address)), port_(port), metrics_(std::move(metrics)), exposer_(std::move(exposer)) {}

MetricsServer::~MetricsServer() {
  // civetweb 1.15 sees that it is to end when somebody connects, otherwise only every two seconds.
  std::atomic<bool> ended = false;
  std::thread waker([&ended, port = port_] {
    while (!ended) {
      Connect(port);
      absl::SleepFor(absl::Milliseconds(10));
    }
  });
  exposer_.reset();
  ended = true;
  waker.join();
}

}  // namespace tandem::controller
