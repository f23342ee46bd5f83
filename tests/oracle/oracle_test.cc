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
constexpr int kOverlapMutants = 2000;
#else
constexpr int kProgramsOfSeed = 200;
constexpr int kOverlapMutants = 200;
#endif

void ExpectSound(const Counts& counts) {
  for (const std::string& name : counts.harmful_accepted) {
    ADD_FAILURE() << "accepted, but harmful: " << name;
  }
  for (const std::string& name : counts.disagreements) {
    ADD_FAILURE() << "rule 5 and the oracle disagree: " << name;
  }
}

TEST(OracleTest, CheckRefusesHarmAndMeaningIsExact) {
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

// Programs whose microbatches interleave around all-to-alls, and mutants of them.
TEST(OracleTest, CheckRefusesHarmInOverlap) {
  Counts all;
  const auto mutants = [&] { return all.programs - all.kinds["unchanged"].harmless; };
  uint64_t seed = 20261122;
  while (mutants() < kOverlapMutants) {
    std::cout << "seed " << seed << "\n";
    const Counts counts = Sweep(seed, kOverlapMutants / 2, OverlapJob);
    ExpectSound(counts);
    all.Add(counts);
    seed = std::random_device{}();  // new ones in every run
  }
  std::cout << all << mutants() << " mutants\n";
  EXPECT_GT(all.harmful_refused, all.programs / 10) << "hardly anything did harm";
}

}  // namespace
}  // namespace tandem::oracle
