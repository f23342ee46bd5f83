// SPDX-License-Identifier: Apache-2.0
#include <chrono>
#include <cstdlib>
#include <iostream>

#include "tests/oracle/sweep.h"

// tandem-oracle-sweep PROGRAMS [SEED]: the test's sweep, as long as one likes. Exits with 1 where the check
// is wrong.
int main(int argc, char** argv) {
  if (argc < 2) {
    std::cerr << "usage: tandem-oracle-sweep PROGRAMS [SEED]\n";
    return 2;
  }
  const auto begin = std::chrono::steady_clock::now();
  const tandem::oracle::Counts counts =
      tandem::oracle::Sweep(argc > 2 ? std::strtoull(argv[2], nullptr, 10) : 1, std::atoi(argv[1]));
  std::cout << counts
            << std::chrono::duration_cast<std::chrono::milliseconds>(std::chrono::steady_clock::now() - begin)
                   .count()
            << " ms\n";
  for (const std::string& name : counts.harmful_accepted) {
    std::cout << "accepted, but harmful: " << name << "\n";
  }
  for (const std::string& name : counts.disagreements) {
    std::cout << "disagree: " << name << "\n";
  }
  for (const std::string& name : counts.harmless) {
    std::cout << "harmless, but refused: " << name << "\n";
  }
  return counts.harmful_accepted.empty() && counts.disagreements.empty() ? 0 : 1;
}
