// SPDX-License-Identifier: Apache-2.0
#include <chrono>
#include <cstdlib>
#include <iostream>
#include <string_view>

#include "tests/oracle/sweep.h"

// tandem-oracle-sweep PROGRAMS [SEED [overlap]]: the test's sweep, as long as one likes; of overlapped
// schedules alone. Exits with 1 where the check is wrong.
int main(int argc, char** argv) {
  const bool overlap = argc == 4 && std::string_view(argv[3]) == "overlap";
  if (argc < 2 || (argc > 3 && !overlap)) {
    std::cerr << "usage: tandem-oracle-sweep PROGRAMS [SEED [overlap]]\n";
    return 2;
  }
  const auto begin = std::chrono::steady_clock::now();
  const tandem::oracle::Counts counts =
      tandem::oracle::Sweep(argc > 2 ? std::strtoull(argv[2], nullptr, 10) : 1, std::atoi(argv[1]),
                            overlap ? tandem::oracle::OverlapJob : tandem::oracle::RandomJob);
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
