// SPDX-License-Identifier: Apache-2.0
#include "tests/oracle/pipeline.h"

#include <gtest/gtest.h>

#include <iostream>
#include <map>
#include <random>
#include <string>

#include "schedules/build/program_builder.h"
#include "schedules/check/agreed.h"
#include "schedules/check/check.h"
#include "tests/oracle/mutations.h"
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

}  // namespace
}  // namespace tandem::oracle
