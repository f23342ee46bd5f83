// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "model/decoder_outline.h"
#include "plan/job_plan.h"

namespace tandem::plan {

// Sets outline, groups, options and stage of a plan whose other members are set: the step program, built
// and checked. strategy: a name of schedules::Strategies(). Throws std::logic_error where the check refuses
// it (a bug of ours, with the check's text).
void BuildStage(const std::string& strategy, int prefetch, JobPlan& plan);

// The sizes of the plan's units, as an outline is written from them.
std::vector<model::UnitLayout> UnitLayouts(const std::vector<fsdp::ClassLayouts>& layouts);

// Its first part: the outline, from model, batch, precision, device and layouts.
void BuildOutline(JobPlan& plan);

// Its last part: the options that follow from the outline and the schedule, and the programs, from outline,
// layouts, groups, schedule and the other options. Alone it is for tests, on other outlines.
void BuildPrograms(JobPlan& plan);

}  // namespace tandem::plan
