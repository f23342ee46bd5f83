#pragma once

#include <string>

#include "nlohmann/json.hpp"
#include "plan/job_plan.h"

namespace tandem::plan {

struct PlanTextOptions {
  bool program = false;  // the text of both programs, after the tables
};

// What `tandem plan` prints: model, step, memory of one rank, units with their gathers, reductions and
// slots. Lines end in "\n".
std::string PlanToText(const JobPlan& plan, const PlanTextOptions& options);

// The same as data: {name, model{...}, step{...}, memory{arena_bytes, persistent_bytes, categories[],
// buffers[]}, units[], programs{train{...}, validate{...}}, program_digest, layout_digest}. Bytes, elements
// and FLOPs are plain numbers; a program's text is one string per instruction.
nlohmann::json PlanToJson(const JobPlan& plan);

}  // namespace tandem::plan
