// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <csignal>

namespace tandem::cli {

// While it exists, Ctrl-C (SIGINT), SIGTERM and SIGHUP do not kill the process but are counted, on whichever
// thread they arrive. The third signal kills the process nevertheless, because the program may hang in a
// write: to a pipe that nothing reads, or to a terminal that is stopped. A signal that was ignored before
// (nohup) stays ignored. May be nested; not thread-safe.
class Interrupts {
 public:
  Interrupts();
  ~Interrupts();
  Interrupts(const Interrupts&) = delete;
  Interrupts& operator=(const Interrupts&) = delete;

  // Returns how many of these signals have arrived since construction. Never blocks.
  int Count() const;

 private:
  std::array<struct sigaction, 3> before_;
  int first_ = 0;
};

}  // namespace tandem::cli
