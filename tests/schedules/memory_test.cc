// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "schedules/build/program_builder.h"
#include "schedules/passes/live_locals.h"
#include "schedules/passes/passes.h"
#include "schedules/program/text.h"
#include "schedules/simulate/simulator.h"
#include "tests/schedules/overlap_bound.h"
#include "tests/schedules/test_outlines.h"

namespace tandem::schedules {
namespace {

struct Alive {
  int64_t bytes = 0;
  int instruction = -1;
};

// The most bytes of locals that are alive for an instruction of the program as it is, by
// looking at every access of every buffer.
Alive MostAlive(const Program& program) {
  const size_t num_buffers = program.buffers.size();
  std::vector<std::vector<int>> accesses(num_buffers);
  for (int i = 0; i < static_cast<int>(program.instructions.size()); ++i) {
    for (const Operand& operand : program.instructions[i].operands) {
      const Buffer& buffer = program.buffers[operand.buffer];
      if (buffer.life == Life::kLocal && !IsHost(buffer.kind)) {
        accesses[operand.buffer].push_back(i);
      }
    }
  }
  VectorClocks clocks(static_cast<int>(program.streams.size()));
  Alive most;
  for (int i = 0; i < static_cast<int>(program.instructions.size()); ++i) {
    const Instruction& instruction = program.instructions[i];
    for (const Wait& wait : instruction.waits) {
      clocks.Wait(instruction.stream, wait.instruction);
    }
    int64_t alive = 0;
    bool opens = false;
    for (size_t b = 0; b < num_buffers; ++b) {
      if (accesses[b].empty() || accesses[b].front() > i) {
        continue;
      }
      opens = opens || accesses[b].front() == i;
      const bool ended = std::all_of(accesses[b].begin(), accesses[b].end(), [&](int access) {
        return access < i && clocks.Knows(clocks.Now(instruction.stream), access);
      });
      alive += ended ? 0 : RingStride(program.buffers[b]);
    }
    if (opens && alive > most.bytes) {
      most = {alive, i};
    }
    clocks.Issue(instruction);
  }
  return most;
}

int64_t DefaultBudget(const StagePrograms& stage) {
  int64_t budget = 0;
  for (const Program* program : stage.All()) {
    budget = std::max(budget, BudgetsOf(*program).by_default);
  }
  return budget;
}

int64_t LeastBudget(const StagePrograms& stage) {
  int64_t budget = 0;
  for (const Program* program : stage.All()) {
    budget = std::max(budget, BudgetsOf(*program).least);
  }
  return budget;
}

void ExpectAliveWithin(int64_t budget, const StagePrograms& stage, const Outline& outline) {
  for (const Program* program : stage.All()) {
    const Alive most = MostAlive(*program);
    EXPECT_EQ(MostBytesAlive(*program), most.bytes) << program->name;
    EXPECT_LE(most.bytes, budget) << program->name << ", "
                                  << ToText(program->instructions[most.instruction], outline);
  }
}

// Of the locals' addresses to the budget.
double AddressSpace(const StagePrograms& stage) {
  return static_cast<double>(stage.arena_bytes - stage.persistent_bytes) /
         static_cast<double>(DefaultBudget(stage));
}

TEST(BudgetTest, LiveBytesStayWithinDefaultAndLeastBudget) {
  for (uint64_t seed = 0; seed < 60; ++seed) {
    SCOPED_TRACE(seed);
    const Outline outline = RandomOutline(seed);
    for (const Schedule schedule : {Schedule::kSequential, Schedule::kOverlapped}) {
      BuildOptions options = RandomOptions(outline, seed);
      options.hold = schedule == Schedule::kOverlapped;
      const StagePrograms stage = BuildStage(outline, options, schedule).value();
      ExpectAliveWithin(DefaultBudget(stage), stage, outline);
      options.budget_bytes = LeastBudget(stage);
      ExpectAliveWithin(options.budget_bytes, BuildStage(outline, options, schedule).value(), outline);
    }
  }
}

// Whatever the number of microbatches, and of layers: see OverlapBound.
TEST(OverlapMemoryTest, OverlappedArenaStaysWithinItsBound) {
  for (const char* strategy : {"zero2", "zero3", "hsdp"}) {
    for (const int layers : {1, 2, 3, 4, 5, 8, 12}) {
      for (const int microbatches : {2, 4, 7}) {
        for (const Schedule schedule : {Schedule::kOverlapped, Schedule::kOverlappedUndelayed}) {
          const Outline outline = MoeDecoder(layers);
          BuildOptions options = OptionsFor(outline, strategy, microbatches, 4);
          options.hold = 1;
          const StagePrograms stage = BuildStage(outline, options, schedule).value();
          EXPECT_LE(stage.arena_bytes - stage.persistent_bytes, OverlapBound(outline))
              << strategy << ", " << layers << " layers, " << microbatches << " microbatches, schedule "
              << static_cast<int>(schedule);
        }
      }
    }
  }
}

// With a forward too many in flight it is not.
TEST(OverlapMemoryTest, ThirdMicrobatchInFlightExceedsTheBound) {
  const Outline outline = MoeDecoder(8);
  BuildOptions options = OptionsFor(outline, "zero3", 3, 4);
  options.hold = 1;
  PassList passes = ForwardOnly(outline, 3);
  for (const NodePass& pass : Sequential(outline, 3)) {
    if (pass.opcode != Opcode::kForward) {
      passes.push_back(pass);
    }
  }
  const StagePrograms stage = BuildStage(outline, options, passes, {}).value();
  EXPECT_GT(stage.arena_bytes - stage.persistent_bytes, OverlapBound(outline));
}

TEST(BudgetTest, WithoutMemoryWaitsMoreIsAlive) {
  const Outline outline = DenseDecoder(Llama8b(8, 4096, 2));
  StagePrograms stage = BuildStage(outline, OptionsFor(outline, "zero3", 2, 8)).value();
  const int64_t budget = DefaultBudget(stage);
  ExpectAliveWithin(budget, stage, outline);
  for (Instruction& instruction : stage.train.instructions) {
    std::erase_if(instruction.waits, [](const Wait& wait) { return wait.frees > 0; });
  }
  EXPECT_GT(MostAlive(stage.train).bytes, budget);
}

TEST(AddressTest, RandomOutlinesTakeLittleMoreThanTheirBudget) {
  std::vector<double> ratios;
  for (uint64_t seed = 0; seed < 100; ++seed) {
    const Outline outline = RandomOutline(seed);
    ratios.push_back(AddressSpace(BuildStage(outline, RandomOptions(outline, seed)).value()));
  }
  std::sort(ratios.begin(), ratios.end());
  EXPECT_LE(ratios[50], 1.05);
  EXPECT_LE(ratios[90], 1.20);
  std::cout << "address space / budget: median " << ratios[50] << ", ninth decile " << ratios[90] << ", most "
            << ratios[99] << "\n";
}

TEST(AddressTest, ManyMicrobatchesTakeLittleMoreThanTheirBudget) {
  const Outline outline = DenseDecoder(Llama8b(32, 4096, 2));
  for (const char* strategy : {"replicate", "zero1", "zero2", "zero3"}) {
    for (const Schedule schedule : {Schedule::kSequential, Schedule::kOverlapped}) {
      for (const bool recomputes : {false, true}) {
        BuildOptions options = OptionsFor(outline, strategy, 16, 8);
        options.hold = schedule == Schedule::kOverlapped;
        options.recompute = recomputes ? RecomputeLayers(outline) : std::vector<bool>();
        const double ratio = AddressSpace(BuildStage(outline, options, schedule).value());
        EXPECT_LE(ratio, 1.05) << strategy << ", schedule " << static_cast<int>(schedule)
                               << (recomputes ? ", recomputed" : "");
        std::cout << strategy << (recomputes ? ", recomputed" : "") << ", schedule "
                  << static_cast<int>(schedule) << ": " << ratio << "\n";
      }
    }
  }
}

TEST(AddressTest, ManyExpertLayersTakeLittleMoreThanTheirBudget) {
  const Outline outline = MoeDecoder(80);
  for (const Schedule schedule : {Schedule::kSequential, Schedule::kOverlapped}) {
    BuildOptions options = OptionsFor(outline, "zero3", 4, 8);
    options.hold = schedule == Schedule::kOverlapped;
    EXPECT_LE(AddressSpace(BuildStage(outline, options, schedule).value()), 1.05)
        << "schedule " << static_cast<int>(schedule);
  }
}

TEST(MemoryWaitTest, MemoryWaitsCostLittleAtTheDefaultBudget) {
  Outline outline = DenseDecoder(Llama8b(32, 8192, 2));
  for (Node& node : outline.nodes) {
    node.compute = "bf16";
  }
  for (const int ranks : {8, 512}) {
    for (const Schedule schedule : {Schedule::kSequential, Schedule::kOverlapped}) {
      BuildOptions options = OptionsFor(outline, "zero3", 2, ranks);
      options.hold = schedule == Schedule::kOverlapped;
      const Program with = BuildStage(outline, options, schedule).value().train;
      Program without = with;
      int num_waits = 0;
      for (Instruction& instruction : without.instructions) {
        num_waits += static_cast<int>(
            std::erase_if(instruction.waits, [](const Wait& wait) { return wait.frees > 0; }));
      }
      const Workload workload{
          .groups = {{"dp_cp", {ranks}}, {"dp_cp_ag", {ranks}}, {"intra_dist_opt", {ranks}}}};
      const DeviceProfile profile = PresetProfile("h200").value();
      const auto step = [&](const Program& program) {
        return static_cast<double>(
            StepNanoseconds(program, Simulate(outline, program, workload, profile).timeline));
      };
      const double cost = step(with) / step(without) - 1;
      EXPECT_LE(cost, 0.005) << ranks << " ranks, schedule " << static_cast<int>(schedule);
      std::cout << ranks << " ranks, schedule " << static_cast<int>(schedule) << ": " << num_waits
                << " memory waits cost " << cost * 100 << " % of " << step(without) / 1e6 << " ms\n";
    }
  }
}

}  // namespace
}  // namespace tandem::schedules
