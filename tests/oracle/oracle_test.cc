// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <iostream>
#include <random>

#include "tests/oracle/mutations.h"
#include "tests/oracle/sweep.h"

// The check against the oracle, over random programs and mutants of them. A larger sweep:
// tandem-oracle-sweep.

namespace tandem::oracle {
namespace {

#if defined(NDEBUG) && !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
constexpr int kProgramsOfSeed = 1250;  // 2 s
#else
constexpr int kProgramsOfSeed = 200;
#endif

void ExpectSound(const Counts& counts) {
  for (const std::string& name : counts.harmful_accepted) {
    ADD_FAILURE() << "accepted, but harmful: " << name;
  }
  for (const std::string& name : counts.disagreements) {
    ADD_FAILURE() << "rule 5 and the oracle disagree: " << name;
  }
}

TEST(OracleTest, TheCheckRefusesWhatDoesHarmAndRuleFiveIsExact) {
  Counts all;
  // And one that is new in every run.
  for (const uint64_t seed : {uint64_t{1}, uint64_t{2}, uint64_t{3}, uint64_t{std::random_device{}()}}) {
    std::cout << "seed " << seed << "\n";
    const Counts counts = Sweep(seed, kProgramsOfSeed);
    ExpectSound(counts);
    all.Add(counts);
  }
  std::cout << all;
  for (const std::string& kind : MutationKinds()) {
    const Counts::OfKind& of = all.kinds[kind];
    // One more wait does no harm, and few programs are too few for the rarest kinds.
    const bool seen = of.harmful + of.malformed > 0;
    EXPECT_TRUE(seen || kind == "add wait" || kProgramsOfSeed < 1000) << kind;
  }
  EXPECT_GT(all.harmful_refused, all.programs / 10) << "hardly anything did harm";
}

}  // namespace
}  // namespace tandem::oracle
