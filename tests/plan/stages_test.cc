// SPDX-License-Identifier: Apache-2.0
#include "plan/stages.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <stdexcept>
#include <string>
#include <vector>

#include "model/unit_parameters.h"
#include "parallel/group_options.h"
#include "tests/plan/test_job.h"

namespace tandem::plan {
namespace {

using testing::ElementsAre;

std::vector<std::string> UnitsOf(const JobPlan& plan) {
  std::vector<std::string> names;
  for (const model::UnitParameters& unit : plan.units) {
    names.push_back(unit.name);
  }
  return names;
}

v1::JobSpec FourLayers(const std::string& parallelism) {
  v1::JobSpec job = TestJob(parallelism);
  job.mutable_model()->set_num_hidden_layers(4);
  job.mutable_model()->set_tie_word_embeddings(false);
  return job;
}

TEST(StagePlansTest, StageHasItsUnitsAndAllParameters) {
  const JobPlan one = MakeJobPlan(FourLayers("{ranks: 2}"));
  const std::vector<JobPlan> stages = StagePlans(one, 2, {1, 1, 1, 1});
  ASSERT_EQ(stages.size(), 2u);
  EXPECT_THAT(UnitsOf(stages[0]), ElementsAre("embedding", "layers.0", "layers.2"));
  EXPECT_THAT(UnitsOf(stages[1]), ElementsAre("layers.1", "layers.3", "head"));
  for (const JobPlan& stage : stages) {
    EXPECT_EQ(Parameters(stage).size(), Parameters(one).size());
    EXPECT_EQ(stage.parameters_digest, one.parameters_digest);
    EXPECT_EQ(stage.program_digest, stages[0].program_digest);
    EXPECT_EQ(TokensPerStep(stage), TokensPerStep(one)) << "stages share microbatches";
    EXPECT_EQ(stage.topology.world, 4);
  }
  EXPECT_NE(stages[0].program_digest, one.program_digest);
  EXPECT_FALSE(CountsTargets(stages[0]));
  EXPECT_TRUE(CountsTargets(stages[1]));
  EXPECT_TRUE(CountsTargets(one));
}

TEST(StagePlansTest, RanksAreInTheGroupsThatProgramsName) {
  for (const JobPlan& stage : StagePlans(MakeJobPlan(FourLayers("{ranks: 2}")), 2, {1, 1, 1, 1})) {
    const int rank = 2 * stage.outline.stage;
    int links = 0;
    for (const schedules::CommunicatorUse& use : CommunicatorUses(stage)) {
      EXPECT_TRUE(std::any_of(stage.groups.begin(), stage.groups.end(), [&](const parallel::Group& group) {
        return group.name == use.group && parallel::PlaceIn(group, rank) >= 0;
      })) << use.group;
      if (parallel::IsLink(use.group)) {
        ++links;
        EXPECT_EQ(parallel::BoundOfCtas({}, use.purpose), 2);
      }
    }
    EXPECT_EQ(links, 4);
  }
}

TEST(StagePlansTest, WhatDoesNotFitIsRefused) {
  const JobPlan one = MakeJobPlan(FourLayers("{ranks: 1}"));
  const auto message = [&](int num_stages, const std::vector<int64_t>& layers) -> std::string {
    try {
      StagePlans(one, num_stages, layers);
    } catch (const std::invalid_argument& error) {
      return error.what();
    }
    return "";
  };
  EXPECT_EQ(message(2, {2, 1}), "the chunks have other layers than the 4 of the model");
  EXPECT_EQ(message(2, {2, 1, 1}), "3 chunks do not fit 2 stages, of which there are two or more");
  EXPECT_EQ(message(1, {4}), "1 chunks do not fit 1 stages, of which there are two or more");
}

}  // namespace
}  // namespace tandem::plan
