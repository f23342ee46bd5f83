// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <csignal>

namespace tandem::cli {

// Counts Ctrl-C (SIGINT), SIGTERM and SIGHUP instead of dying of them, for its life, whichever thread the
// kernel gives them to: gRPC has threads of its own. The third kills the process after all: the program that
// counts may hang, in a pipe that is not read or a terminal that is stopped. A signal that the caller had
// ignored (nohup) stays ignored. May be nested; not thread-safe.
class Interrupts {
 public:
  Interrupts();
  ~Interrupts();
  Interrupts(const Interrupts&) = delete;
  Interrupts& operator=(const Interrupts&) = delete;

  // How many have come since construction. Never blocks.
  int Count() const;

 private:
  std::array<struct sigaction, 3> before_;
  int first_ = 0;
};

}  // namespace tandem::cli
