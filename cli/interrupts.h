#pragma once

#include <csignal>

namespace tandem::cli {

// Counts Ctrl-C (SIGINT), SIGTERM and SIGHUP instead of dying of them, for its life. Construct on the main
// thread before anything starts threads: they inherit the mask.
class Interrupts {
 public:
  Interrupts();
  ~Interrupts();
  Interrupts(const Interrupts&) = delete;
  Interrupts& operator=(const Interrupts&) = delete;

  // How many have come since construction. Never blocks.
  int Count();

 private:
  sigset_t before_;
  int fd_ = -1;
  int count_ = 0;
};

}  // namespace tandem::cli
