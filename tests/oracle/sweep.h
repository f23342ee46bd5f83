// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <iosfwd>
#include <map>
#include <string>
#include <vector>

#include "tests/oracle/random_job.h"

namespace tandem::oracle {

// The results of judging many random programs and their mutants.
struct Counts {
  struct OfKind {
    int harmful = 0;
    int harmless = 0;
    int malformed = 0;  // refused by rule 1, so that nothing can run them
  };

  int programs = 0;   // including mutants
  int unchanged = 0;  // of these, programs without a change
  int harmful_refused = 0;
  int harmless_accepted = 0;
  std::map<std::string, int> harmful_by_rule;
  std::map<std::string, int> harmless_refused;  // by rule
  std::map<std::string, OfKind> kinds;
  std::vector<std::string> harmful_accepted;
  std::vector<std::string> harmless;       // harmless, but refused
  std::vector<std::string> disagreements;  // between rule 5 and the oracle

  void Add(const Counts& other);
};

std::ostream& operator<<(std::ostream& out, const Counts& counts);

// Builds random jobs (`next`: outlines, strategies, precisions, schedules, budgets, ranks) and judges each
// job's programs and mutants of them, num_programs in all:
//
//   * CheckStage accepts the programs that the passes made, and the oracle finds no harm in them
//   * a program that CheckStage accepts does no harm in any order that the explorer tries
//   * rule 5 refuses exactly the programs that, in issue order and with every buffer in its own place, give
//     another result than the oracle's reference
Counts Sweep(uint64_t seed, int num_programs, Job (*next)(std::mt19937_64&) = RandomJob);

}  // namespace tandem::oracle
