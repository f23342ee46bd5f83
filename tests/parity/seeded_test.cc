#include <gtest/gtest.h>

#include <algorithm>
#include <iostream>
#include <random>
#include <set>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "device/seeded_scheduler.h"
#include "schedules_v1/text.h"
#include "tests/parity/expect_same.h"
#include "tests/parity/job.h"
#include "tests/parity/run.h"

namespace tandem::parity {
namespace {

using schedules_v1::Instruction;
using schedules_v1::Opcode;
using schedules_v1::SlotUse;
using schedules_v1::StreamKind;

// Any order that a program allows gives the same bits, and an order that it should not allow other ones. The
// checker has seen these programs; here they run, one instruction at a time, in hundreds of orders.

constexpr int kSeeds = 200;

JobOptions Small(int ranks, int prefetch) {
  return {.ranks = ranks,
          .microbatches_per_rank = 2,
          .steps = 2,
          .layers = 2,
          .hidden = 8,
          .inner = 8,
          .heads = 2,
          .kv_heads = 1,
          .sequence_length = 4,
          .micro_batch_size = 1,
          .prefetch = prefetch,
          .validate_every_steps = 1,
          .validation_batches = 3,
          .files = "/text.*"};  // thousands of runs: each reads it
}

JobRun RunSeeded(const plan::JobPlan& plan, uint64_t seed, uint64_t& order) {
  device::SeededScheduler scheduler(plan.train.ranks, seed);
  JobRun run = RunJob(plan, {.poison = true, .scheduler = &scheduler});
  order = scheduler.order_digest();
  return run;
}

class SeededTest : public testing::TestWithParam<std::tuple<int, int>> {};  // ranks, prefetch

TEST_P(SeededTest, EveryOrderGivesTheSameBits) {
  const auto [ranks, prefetch] = GetParam();
  const plan::JobPlan plan = MakeJob(Small(ranks, prefetch));
  const JobRun ordinary = RunJob(plan);
  ASSERT_TRUE(ordinary.steps.back().scalars.contains("validation_loss"));
  const uint64_t first = std::random_device{}();
  std::cout << "seeds from " << first << "\n";
  std::set<uint64_t> orders;
  for (uint64_t seed = first; seed < first + kSeeds; ++seed) {
    uint64_t order = 0;
    ASSERT_EQ(FirstDifference(ordinary, RunSeeded(plan, seed, order)), "") << "seed " << seed;
    orders.insert(order);
  }
  EXPECT_GE(orders.size(), kSeeds * 9 / 10) << "the seeds hardly change anything";
}

TEST_P(SeededTest, ASeedCanBeRunAgain) {
  const auto [ranks, prefetch] = GetParam();
  const plan::JobPlan plan = MakeJob(Small(ranks, prefetch));
  const uint64_t first = std::random_device{}();
  std::cout << "seeds from " << first << "\n";
  for (uint64_t seed = first; seed < first + 5; ++seed) {
    uint64_t one = 0;
    uint64_t other = 0;
    RunSeeded(plan, seed, one);
    RunSeeded(plan, seed, other);
    EXPECT_EQ(one, other) << "seed " << seed;
  }
}

INSTANTIATE_TEST_SUITE_P(RanksAndPrefetch, SeededTest,
                         testing::Combine(testing::Values(1, 2), testing::Values(0, 1, 2)),
                         [](const auto& info) {
                           return "Ranks" + std::to_string(std::get<0>(info.param)) + "Prefetch" +
                                  std::to_string(std::get<1>(info.param));
                         });

// A program with one fault, which no checker has seen.
struct Mutant {
  std::string what;
  plan::JobPlan plan;
};

// The first seed, from 1, whose run of the mutant has other bits; 0: none of kSeeds.
int CaughtBy(const plan::JobPlan& mutant, const JobRun& right) {
  for (int seed = 1; seed <= kSeeds; ++seed) {
    uint64_t order = 0;
    if (!FirstDifference(right, RunSeeded(mutant, static_cast<uint64_t>(seed), order)).empty()) {
      return seed;
    }
  }
  return 0;
}

void ExpectEachCaught(const plan::JobPlan& plan, const std::vector<Mutant>& mutants) {
  const JobRun right = RunJob(plan);
  int most = 0;
  for (const Mutant& mutant : mutants) {
    const int seed = CaughtBy(mutant.plan, right);
    EXPECT_GT(seed, 0) << mutant.what << " is not caught by " << kSeeds << " seeds";
    most = std::max(most, seed);
  }
  std::cout << mutants.size() << " mutants, each caught by the seeds 1 to " << most << "\n";
  EXPECT_FALSE(mutants.empty());
}

class PlantedFaultTest : public testing::TestWithParam<int> {  // ranks
 protected:
  const plan::JobPlan plan_ = MakeJob(Small(GetParam(), /*prefetch=*/1));

  std::string Text(size_t i) const {
    return std::to_string(i) + " " + schedules_v1::ToText(plan_.train_program.instructions[i], plan_.outline_v1);
  }
};

TEST_P(PlantedFaultTest, EveryMissingWaitIsCaught) {
  std::vector<Mutant> mutants;
  const auto& instructions = plan_.train_program.instructions;
  for (size_t i = 0; i < instructions.size(); ++i) {
    for (size_t w = 0; w < instructions[i].waits.size(); ++w) {
      Mutant& mutant = mutants.emplace_back(Mutant{
          Text(i) + " without its wait for " + Text(static_cast<size_t>(instructions[i].waits[w])), plan_});
      auto& waits = mutant.plan.train_program.instructions[i].waits;
      waits.erase(waits.begin() + static_cast<std::ptrdiff_t>(w));
    }
  }
  ExpectEachCaught(plan_, mutants);
}

// On another stream a release is ordered after the readers by nothing but its place in the list.
TEST_P(PlantedFaultTest, EveryEarlyReleaseIsCaught) {
  std::vector<Mutant> mutants;
  const auto& instructions = plan_.train_program.instructions;
  for (size_t i = 0; i < instructions.size(); ++i) {
    // Released tokens are no NaN but indices of nowhere.
    if (instructions[i].opcode != Opcode::kRelease ||
        plan_.outline_v1.values[instructions[i].target].name == "tokens") {
      continue;
    }
    Mutant& mutant = mutants.emplace_back(Mutant{Text(i) + " on the gather stream", plan_});
    mutant.plan.train_program.instructions[i].stream = StreamKind::kGather;
  }
  ExpectEachCaught(plan_, mutants);
}

TEST_P(PlantedFaultTest, EveryEarlyReshardIsCaught) {
  std::vector<Mutant> mutants;
  const auto& instructions = plan_.train_program.instructions;
  for (size_t i = 0; i < instructions.size(); ++i) {
    if (instructions[i].opcode != Opcode::kReshard) {
      continue;
    }
    Mutant& mutant = mutants.emplace_back(Mutant{Text(i) + " on the gather stream", plan_});
    mutant.plan.train_program.instructions[i].stream = StreamKind::kGather;
  }
  ExpectEachCaught(plan_, mutants);
}

TEST_P(PlantedFaultTest, EveryWrongSlotIsCaught) {
  std::vector<Mutant> mutants;
  const schedules_v1::Program& program = plan_.train_program;
  for (size_t i = 0; i < program.instructions.size(); ++i) {
    if (program.instructions[i].opcode == Opcode::kReshard) {
      continue;  // the wrong slot may well be one that is free anyway
    }
    for (size_t s = 0; s < program.instructions[i].slots.size(); ++s) {
      Mutant mutant{Text(i), plan_};
      SlotUse& use = mutant.plan.train_program.instructions[i].slots[s];
      const std::vector<int>& counts =
          use.role == schedules_v1::SlotRole::kParameters ? program.parameter_slots : program.gradient_slots;
      if (counts[static_cast<size_t>(use.size_class)] < 2) {
        continue;
      }
      mutant.what += " with " + schedules_v1::ToText(use);
      use.index = (use.index + 1) % counts[static_cast<size_t>(use.size_class)];
      mutant.what += " taken for " + schedules_v1::ToText(use);
      mutants.push_back(std::move(mutant));
    }
  }
  ExpectEachCaught(plan_, mutants);
}

INSTANTIATE_TEST_SUITE_P(Ranks, PlantedFaultTest, testing::Values(1, 2),
                         [](const auto& info) { return "Ranks" + std::to_string(info.param); });

}  // namespace
}  // namespace tandem::parity
