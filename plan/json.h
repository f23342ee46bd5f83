// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "nlohmann/json.hpp"
#include "plan/job_plan.h"

namespace tandem::plan {

// The content of text.h as JSON: {name, model{...}, step{...}, memory{arena_bytes, persistent_bytes,
// alive_bytes, gap_bytes, budget_bytes, least_budget_bytes, default_budget_bytes, host_bytes,
// checkpoint_bytes, saved_bytes, kinds[]}, units[], communicators[], programs{train{...}, begin{...},
// update{...}, validate{...}, train_save{...}}, program_digest, parameters_digest}. Bytes, elements and FLOPs
// are plain numbers. A program has its buffers, and each instruction as a string.
nlohmann::json PlanToJson(const JobPlan& plan);

}  // namespace tandem::plan
