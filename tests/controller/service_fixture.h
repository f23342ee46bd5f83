// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <gtest/gtest.h>

#include <csignal>
#include <memory>
#include <string>
#include <utility>

#include "controller/daemon.h"
#include "platform/clock.h"
#include "platform/random.h"
#include "tests/controller/job_client.h"
#include "tests/platform/temporary_folder.h"

namespace tandem::controller {

// Starts a controller in this process, with its state in `folder`, on a free port. Null after a failure.
inline std::unique_ptr<Daemon> StartServer(const platform::TemporaryFolder& folder, ServerOptions options,
                                           const platform::Clock& clock = platform::SteadyClock()) {
  std::signal(SIGPIPE, SIG_IGN);  // as the daemon does
  options.state_directory = folder.path();
  options.listen = {"127.0.0.1:0"};
  options.sweep_every = absl::Milliseconds(50);  // tests wait for what it ends
  options.fatal = [](const absl::Status& status) { ADD_FAILURE() << status; };
  auto server = Daemon::Start(options, clock, platform::SystemRandom());
  EXPECT_TRUE(server.ok()) << server.status();
  return server.ok() ? *std::move(server) : nullptr;
}

// The whole controller in this process, over real gRPC, without workers: tests simulate them.
class ServiceTest : public ::testing::Test {
 protected:
  explicit ServiceTest(const Limits& limits = {}, const tls::TlsFiles& tls = {},
                       const platform::Clock& clock = platform::SteadyClock()) {
    server_ = StartServer(folder_, {.tls = tls, .metrics_listen = "off", .limits = limits}, clock);
    client_ = std::make_unique<JobClient>(server_->addresses().at(0));
  }
  const std::string& address() { return server_->addresses().at(0); }

  platform::TemporaryFolder folder_;
  std::unique_ptr<Daemon> server_;
  std::unique_ptr<JobClient> client_;
};

}  // namespace tandem::controller
