// SPDX-License-Identifier: Apache-2.0
#include "tests/oracle/pipeline.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <iostream>
#include <map>
#include <random>
#include <string>

#include "schedules/check/check.h"
#include "schedules/passes/passes.h"
#include "tests/oracle/explorer.h"
#include "tests/oracle/merged_stages.h"
#include "tests/oracle/mutations.h"
#include "tests/oracle/step_reference.h"
#include "tests/schedules/divided_job.h"
#include "tests/schedules/test_outlines.h"

namespace tandem::oracle {
namespace {

using schedules::StagePrograms;

// What stages that get to the end compute otherwise than the undivided step, by the oracle's own arithmetic.
std::optional<std::string> WrongMeaning(const schedules::DividedJob& job) {
  const StagePrograms merged = MergeStages(job.stages, job.programs);
  const std::map<std::string, const schedules::Program*> programs = {{"begin", &merged.begin},
                                                                     {"train", &merged.train},
                                                                     {"update", &merged.update},
                                                                     {"validate", &merged.validate},
                                                                     {"train_save", &merged.train_save}};
  // Each program last once: later runs overwrite what this one leaves in rings.
  std::vector<std::vector<std::string>> sequences = {
      {"begin"}, {"begin", "train"}, {"begin", "update"}, {"validate"}};
  if (job.options.saves) {
    sequences.push_back({"begin", "train_save"});
  }
  for (const std::vector<std::string>& runs : sequences) {
    std::vector<const schedules::Program*> of_runs;
    for (const std::string& run : runs) {
      of_runs.push_back(programs.at(run));
    }
    if (const auto difference =
            FirstDifference(ReferenceOf(job.undivided, job.options, merged, runs),
                            Explorer(job.undivided, job.options, merged, of_runs).RunInIssueOrder())) {
      return difference;
    }
  }
  return std::nullopt;
}

// Two programs of the same machine and arithmetic, written apart.
TEST(PipelineTest, CheckRefusesExactlyBadPipelines) {
  const uint64_t new_seed = std::random_device{}();
  std::map<std::string, int> counts;
  for (const uint64_t seed : {uint64_t{1}, uint64_t{2}, new_seed}) {
    std::cout << "seed " << seed << "\n";
    std::mt19937_64 random(seed);
    for (int k = 0; k < 700; ++k) {
      const int num_microbatches = 1 + static_cast<int>(random() % 4);
      const bool one_f_one_b = random() % 4 != 0;
      const int num_chunks = 1 + static_cast<int>(random() % 2);
      schedules::DividedJob job =
          schedules::DenseStages(2, 1, num_microbatches, "zero3", /*ranks=*/2, num_chunks);
      job.options.saves = random() % 2 == 0;
      std::vector<schedules::Outline> outlines;
      for (int s = 0; s < 2; ++s) {
        outlines.push_back(job.stages[s].outline);
        job.options.prefetch = static_cast<int>(random() % 3);
        job.Build(s, one_f_one_b ? schedules::Pipelined(outlines[s], 2, num_microbatches)
                                 : schedules::Sequential(outlines[s], num_microbatches));
      }
      std::vector<StagePrograms>& stages = job.programs;
      const size_t changed = random() % 2;
      const auto mutate = random() % 2 == 0 ? Mutate : MoveExchange;
      const Mutant mutant = mutate(outlines[changed], stages[changed], random);
      stages[changed] = mutant.stage;
      if (!CheckAlone(outlines[changed], OptionsOf(job.options, job.stages[changed].origin), stages[changed])
               .ok()) {
        ++counts["refused alone"];
        continue;
      }
      std::optional<std::string> harm;
      for (const auto member : {&StagePrograms::train, &StagePrograms::begin, &StagePrograms::update,
                                &StagePrograms::validate, &StagePrograms::train_save}) {
        if (!harm) {
          harm = FindHarmTogether(outlines, {&(stages[0].*member), &(stages[1].*member)});
        }
      }
      EXPECT_EQ(harm.has_value(), !job.CheckTogether().empty()) << mutant.change;
      const bool ends = !harm;
      if (ends) {
        harm = WrongMeaning(job);
      }
      const std::string refusal = job.Check();
      ++counts[std::string(!harm  ? "harmless"
                           : ends ? "wrong"
                                  : "harmful") +
               (refusal.empty() ? " accepted" : " refused")];
      if (harm && refusal.empty()) {
        ADD_FAILURE() << "accepted, but harmful: " << mutant.change << "\n  " << *harm;
      }
      if (!harm && !refusal.empty()) {
        ADD_FAILURE() << "refused, but harmless: " << mutant.change << "\n  " << refusal;
      }
    }
  }
  for (const auto& [name, count] : counts) {
    std::cout << name << " " << count << "; ";
  }
  std::cout << "\n";
  EXPECT_GT(counts["harmful refused"], 5) << "hardly anything stood still";
  EXPECT_GT(counts["wrong refused"], 20) << "hardly anything meant something else";
  EXPECT_GT(counts["harmless accepted"], 100);
}

// Builds the stages within budgets between the least (share 0) and the default of each.
void BuildWithinBudgets(double share, schedules::DividedJob& job) {
  for (size_t s = 0; s < job.stages.size(); ++s) {
    const schedules::PassList passes = schedules::Pipelined(
        job.stages[s].outline, static_cast<int>(job.stages.size()), job.options.num_microbatches);
    job.options.budget_bytes = 0;
    job.Build(static_cast<int>(s), passes);
    schedules::Budgets most;
    for (const schedules::Program* program : job.programs[s].All()) {
      const schedules::Budgets budgets = schedules::BudgetsOf(*program);
      most.least = std::max(most.least, budgets.least);
      most.by_default = std::max(most.by_default, budgets.by_default);
    }
    job.options.budget_bytes =
        most.least + static_cast<int64_t>(share * static_cast<double>(most.by_default - most.least));
    job.Build(static_cast<int>(s), passes);
  }
}

int MemoryWaits(const schedules::Program& program) {
  int waits = 0;
  for (const schedules::Instruction& in : program.instructions) {
    waits += static_cast<int>(std::count_if(in.waits.begin(), in.waits.end(),
                                            [](const schedules::Wait& wait) { return wait.frees > 0; }));
  }
  return waits;
}

// What crosses is most of what is alive, and no backward reads it: memory waits are for exchanges.
schedules::Outline WithWideBoundaries(int num_stages, int layers) {
  schedules::Outline outline = schedules::SmallDecoder(num_stages * layers);
  const auto stages = DivideIntoStages(outline, schedules::ByLayers(outline, num_stages), num_stages);
  for (const schedules::Stage& stage : *stages) {
    for (const schedules::Boundary& boundary : stage.outline.received) {
      const schedules::ValueId crosses = stage.origin.values[boundary.value];
      schedules::Value& value = outline.values[crosses];
      value.bytes = value.gradient_bytes = schedules::Fixed(int64_t{1} << 30);
      for (schedules::Node& node : outline.nodes) {
        std::erase(node.backward_input.reads, crosses);
        std::erase(node.backward_weight.reads, crosses);
      }
    }
  }
  return outline;
}

TEST(PipelineTest, MemoryWaitsHoldUpNoStage) {
  int waits = 0;
  for (const int num_stages : {2, 3, 4}) {
    for (const int layers : {1, 2}) {
      const schedules::Outline outline = WithWideBoundaries(num_stages, layers);
      for (const int microbatches : {1, 2, 3, 5, 8}) {
        for (const int prefetch : {0, 1, 2}) {
          for (const double share : {0.0, 0.3, 1.0}) {
            SCOPED_TRACE(testing::Message()
                         << num_stages << " stages, " << layers << " layers, " << microbatches
                         << " microbatches, prefetch " << prefetch << ", share " << share);
            schedules::BuildOptions options = schedules::OptionsFor(outline, "zero3", microbatches, 2);
            options.prefetch = prefetch;
            schedules::DividedJob job(outline, schedules::ByLayers(outline, num_stages), options);
            BuildWithinBudgets(share, job);
            EXPECT_EQ(job.Check(), "");
            std::vector<schedules::Outline> outlines;
            std::vector<const schedules::Program*> programs;
            for (int stage = 0; stage < num_stages; ++stage) {
              outlines.push_back(job.stages[stage].outline);
              programs.push_back(&job.programs[stage].train);
              waits += MemoryWaits(job.programs[stage].train);
            }
            EXPECT_EQ(FindHarmTogether(outlines, programs), std::nullopt);
          }
        }
      }
    }
  }
  EXPECT_GT(waits, 1000) << "hardly any memory waits";
}

}  // namespace
}  // namespace tandem::oracle
