// SPDX-License-Identifier: Apache-2.0
#include "tests/oracle/pipeline.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <iostream>
#include <map>
#include <random>
#include <string>

#include "schedules/build/program_builder.h"
#include "schedules/check/agreed.h"
#include "schedules/check/check.h"
#include "schedules/passes/passes.h"
#include "tests/oracle/mutations.h"
#include "tests/schedules/dense_stages.h"
#include "tests/schedules/one_f_one_b.h"
#include "tests/schedules/test_outlines.h"

namespace tandem::oracle {
namespace {

using schedules::StagePrograms;

// Two programs of the same machine, written apart.
TEST(PipelineTest, TheCheckRefusesTogetherWhatGoesWrongAndNothingElse) {
  const uint64_t new_seed = std::random_device{}();
  std::map<std::string, int> counts;
  for (const uint64_t seed : {uint64_t{1}, uint64_t{2}, new_seed}) {
    std::cout << "seed " << seed << "\n";
    std::mt19937_64 random(seed);
    for (int k = 0; k < 700; ++k) {
      const std::vector<schedules::Outline> outlines = schedules::TwoStages();
      const int num_microbatches = 1 + static_cast<int>(random() % 4);
      const bool one_f_one_b = random() % 4 != 0;
      std::vector<schedules::BuildOptions> options;
      std::vector<StagePrograms> stages;
      for (const schedules::Outline& outline : outlines) {
        options.push_back(schedules::OptionsFor(outline, "zero3", num_microbatches, 2));
        options.back().prefetch = static_cast<int>(random() % 3);
        stages.push_back(schedules::BuildStage(outline, options.back(),
                                               one_f_one_b ? schedules::OneFOneB(outline, 2, num_microbatches)
                                                           : schedules::Sequential(outline, num_microbatches),
                                               schedules::ForwardOnly(outline, 1))
                             .value());
      }
      const size_t changed = random() % 2;
      const auto mutate = random() % 3 == 0 ? Mutate : MoveExchange;
      const Mutant mutant = mutate(outlines[changed], stages[changed], random);
      stages[changed] = mutant.stage;
      if (!CheckStage(outlines[changed], options[changed], stages[changed]).ok()) {
        ++counts["refused alone"];
        continue;
      }
      const absl::Status status = CheckStagesAgree(outlines, stages);
      std::optional<std::string> harm;
      for (const auto member : {&StagePrograms::train, &StagePrograms::begin, &StagePrograms::validate}) {
        if (!harm) {
          harm = FindHarmTogether(outlines, {&(stages[0].*member), &(stages[1].*member)});
        }
      }
      ++counts[std::string(harm ? "harmful" : "harmless") + (status.ok() ? " accepted" : " refused")];
      if (harm && status.ok()) {
        ADD_FAILURE() << "accepted, but harmful: " << mutant.change << "\n  " << *harm;
      }
      if (!harm && !status.ok()) {
        ADD_FAILURE() << "refused, but harmless: " << mutant.change << "\n  " << status.message();
      }
    }
  }
  for (const auto& [name, count] : counts) {
    std::cout << name << " " << count << "; ";
  }
  std::cout << "\n";
  EXPECT_GT(counts["harmful refused"], 5) << "hardly anything stood still";
  EXPECT_GT(counts["harmless accepted"], 100);
}

// The programs of the stages under 1F1B, within budgets between the least (share 0) and the default of each.
std::vector<StagePrograms> WithinBudgets(const std::vector<schedules::Outline>& outlines,
                                         int num_microbatches, int prefetch, double share) {
  std::vector<StagePrograms> stages;
  for (const schedules::Outline& outline : outlines) {
    schedules::BuildOptions options = schedules::OptionsFor(outline, "zero3", num_microbatches, 2);
    options.prefetch = prefetch;
    const auto build = [&] {
      return schedules::BuildStage(
          outline, options, schedules::OneFOneB(outline, static_cast<int>(outlines.size()), num_microbatches),
          schedules::ForwardOnly(outline, 1));
    };
    const StagePrograms by_default = build().value();
    schedules::Budgets most;
    for (const schedules::Program* program : by_default.All()) {
      const schedules::Budgets budgets = schedules::BudgetsOf(*program);
      most.least = std::max(most.least, budgets.least);
      most.by_default = std::max(most.by_default, budgets.by_default);
    }
    options.budget_bytes =
        most.least + static_cast<int64_t>(share * static_cast<double>(most.by_default - most.least));
    stages.push_back(build().value());
    EXPECT_EQ(CheckStage(outline, options, stages.back()), absl::OkStatus());
  }
  return stages;
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
void WidenBoundaries(std::vector<schedules::Outline>& outlines) {
  for (schedules::Outline& outline : outlines) {
    for (const auto* boundaries : {&outline.received, &outline.sent}) {
      for (const schedules::Boundary& boundary : *boundaries) {
        schedules::Value& value = outline.values[boundary.value];
        value.bytes = value.gradient_bytes = schedules::Fixed(int64_t{1} << 30);
        for (schedules::Node& node : outline.nodes) {
          std::erase(node.backward_input.reads, boundary.value);
          std::erase(node.backward_weight.reads, boundary.value);
        }
      }
    }
  }
}

TEST(PipelineTest, MemoryWaitsHoldUpNoStage) {
  int waits = 0;
  for (const int num_stages : {2, 3, 4}) {
    for (const int layers : {1, 2}) {
      std::vector<schedules::Outline> outlines = schedules::DenseStages(num_stages, layers);
      WidenBoundaries(outlines);
      for (const int microbatches : {1, 2, 3, 5, 8}) {
        for (const int prefetch : {0, 1, 2}) {
          for (const double share : {0.0, 0.3, 1.0}) {
            SCOPED_TRACE(testing::Message()
                         << num_stages << " stages, " << layers << " layers, " << microbatches
                         << " microbatches, prefetch " << prefetch << ", share " << share);
            const std::vector<StagePrograms> stages = WithinBudgets(outlines, microbatches, prefetch, share);
            EXPECT_EQ(CheckStagesAgree(outlines, stages), absl::OkStatus());
            std::vector<const schedules::Program*> programs;
            for (const StagePrograms& stage : stages) {
              programs.push_back(&stage.train);
              waits += MemoryWaits(stage.train);
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
