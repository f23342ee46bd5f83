// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "model/decoder_outline.h"
#include "plan/job_plan.h"

namespace tandem::plan {

// Sets outline, groups, options and stage of a plan whose other members are set: builds the step program and
// checks it. `strategy` is a name of schedules::Strategies(). Throws std::logic_error, with the check's text,
// if the check refuses the program (a bug of ours).
void BuildStage(const std::string& strategy, int prefetch, JobPlan& plan);

// Converts layouts, by unit and class, to what the writer of an outline needs (model/decoder_outline.h).
std::vector<model::UnitLayout> UnitLayouts(const std::vector<fsdp::ClassLayouts>& layouts);

// The first part of BuildStage: sets the outline, from model, batch, precision, device and layouts.
void BuildOutline(JobPlan& plan);

// The last part of BuildStage: sets the options that follow from the outline and the schedule, and builds the
// programs from outline, layouts, groups, schedule and the other options. Tests call it alone, for other
// outlines.
void BuildPrograms(JobPlan& plan);

}  // namespace tandem::plan
