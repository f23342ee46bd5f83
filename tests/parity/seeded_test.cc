// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <iostream>
#include <random>
#include <set>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "schedules/check/check.h"
#include "schedules/program/text.h"
#include "tests/device/seeded_scheduler.h"
#include "tests/parity/expect_same.h"
#include "tests/parity/job.h"
#include "tests/parity/run.h"

namespace tandem::parity {
namespace {

using schedules::Buffer;
using schedules::BufferId;
using schedules::Instruction;
using schedules::Life;
using schedules::Operand;
using schedules::Program;
using schedules::Wait;

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
          .validation_batches = 3};
}

JobRun RunSeeded(const plan::JobPlan& plan, uint64_t seed, uint64_t& order) {
  device::SeededScheduler scheduler(plan.topology.world, seed);
  JobRun run = RunJob(plan, {.fill_with_nan = true, .scheduler = &scheduler});
  order = scheduler.order_digest();
  return run;
}

class SeededTest : public testing::TestWithParam<std::tuple<int, int>> {};  // ranks, prefetch

TEST_P(SeededTest, EveryOrderGivesTheSameBits) {
  const auto [ranks, prefetch] = GetParam();
  const plan::JobPlan plan = MakeJob(Small(ranks, prefetch));
  const JobRun ordinary = RunJob(plan);
  ASSERT_TRUE(ordinary.steps.back().scalars().contains("validation_loss"));
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
  // Without validations, which would split `train` into `update` and `begin`.
  static plan::JobPlan Job(int ranks) {
    JobOptions options = Small(ranks, /*prefetch=*/1);
    options.steps = 3;
    // The rows of the table that a smaller gather overwrites are those of blanks and digits: some are read.
    options.sequence_length = 16;
    options.validate_every_steps = 0;
    return MakeJob(options);
  }

  const plan::JobPlan plan_ = Job(GetParam());

  std::string Text(size_t i) const {
    return std::to_string(i) + " " + schedules::ToText(plan_.stage.train.instructions[i], plan_.outline);
  }
};

// Whether instruction i gathers a unit into the memory of another gather of the same unit.
bool GathersInPlace(const Program& program, int i) {
  const Instruction& instruction = program.instructions[i];
  if (instruction.opcode != schedules::Opcode::kUnshard) {
    return false;
  }
  const BufferId gathered = instruction.operands.back().buffer;
  const Buffer& buffer = program.buffers[gathered];
  for (size_t other = 0; other < program.buffers.size(); ++other) {
    if (static_cast<int>(other) != gathered && program.buffers[other].kind == buffer.kind &&
        program.buffers[other].subject == buffer.subject &&
        program.buffers[other].address == buffer.address) {
      return true;
    }
  }
  return false;
}

// Some waits only bound how far gathers run ahead: the check accepts the program without them. And a gather
// of one rank is a copy, a single piece of work, whose bytes are those that the unit's former gather has left
// in that place.
TEST_P(PlantedFaultTest, EveryMissingWaitThatIsRefusedIsCaught) {
  std::vector<Mutant> mutants;
  const std::vector<Instruction>& instructions = plan_.stage.train.instructions;
  for (size_t i = 0; i < instructions.size(); ++i) {
    for (size_t w = 0; w < instructions[i].waits.size(); ++w) {
      Mutant& mutant =
          mutants.emplace_back(Mutant{Text(i) + " without its wait for " +
                                          Text(static_cast<size_t>(instructions[i].waits[w].instruction)),
                                      plan_});
      std::vector<Wait>& waits = mutant.plan.stage.train.instructions[i].waits;
      waits.erase(waits.begin() + static_cast<std::ptrdiff_t>(w));
      const bool same_bytes =
          GetParam() == 1 && (GathersInPlace(plan_.stage.train, static_cast<int>(i)) ||
                              GathersInPlace(plan_.stage.train, instructions[i].waits[w].instruction));
      if (same_bytes || schedules::CheckStage(plan_.outline, plan_.options, mutant.plan.stage).ok()) {
        mutants.pop_back();
      }
    }
  }
  ExpectEachCaught(plan_, mutants);
}

// The instructions that touch a buffer, first and last.
std::vector<std::pair<int, int>> Lives(const Program& program) {
  std::vector<std::pair<int, int>> lives(program.buffers.size(), {-1, -1});
  for (size_t i = 0; i < program.instructions.size(); ++i) {
    for (const Operand& operand : program.instructions[i].operands) {
      std::pair<int, int>& life = lives[operand.buffer];
      life = {life.first < 0 ? static_cast<int>(i) : life.first, static_cast<int>(i)};
    }
  }
  return lives;
}

// Scratch apart, which holds nothing between instructions.
TEST_P(PlantedFaultTest, EveryOverlapWithALiveBufferIsCaught) {
  std::vector<Mutant> mutants;
  const Program& program = plan_.stage.train;
  const std::vector<std::pair<int, int>> lives = Lives(program);
  for (size_t a = 0; a < program.buffers.size(); ++a) {
    for (size_t b = 0; b < program.buffers.size(); ++b) {
      const Buffer& moved = program.buffers[a];
      const Buffer& other = program.buffers[b];
      const bool fits = moved.life == Life::kLocal && other.life == Life::kLocal && lives[a].first >= 0 &&
                        moved.kind == other.kind && moved.kind != schedules::BufferKind::kScratch &&
                        moved.bytes.bound <= other.bytes.bound;
      // The other is written before this one, and read after it was written.
      if (a == b || !fits || lives[b].first >= lives[a].first || lives[b].second <= lives[a].first) {
        continue;
      }
      Mutant& mutant = mutants.emplace_back(Mutant{moved.name + " on the memory of " + other.name, plan_});
      mutant.plan.stage.train.buffers[a].address = other.address;
      break;
    }
  }
  ExpectEachCaught(plan_, mutants);
}

INSTANTIATE_TEST_SUITE_P(Ranks, PlantedFaultTest, testing::Values(1, 2),
                         [](const auto& info) { return "Ranks" + std::to_string(info.param); });

}  // namespace
}  // namespace tandem::parity
