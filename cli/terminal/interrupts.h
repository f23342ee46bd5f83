// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <csignal>

namespace tandem::cli {

// Counts Ctrl-C (SIGINT), SIGTERM and SIGHUP while it exists, instead of letting them kill the process, on
// whichever thread they arrive. The third kills the process nevertheless: the program may hang in a write, to
// a pipe that nothing reads or a terminal that is stopped. A signal that was ignored before (nohup) stays
// ignored. May be nested; not thread-safe.
class Interrupts {
 public:
  Interrupts();
  ~Interrupts();
  Interrupts(const Interrupts&) = delete;
  Interrupts& operator=(const Interrupts&) = delete;

  // Returns how many have arrived since construction. Never blocks.
  int Count() const;

 private:
  std::array<struct sigaction, 3> before_;
  int first_ = 0;
};

}  // namespace tandem::cli
