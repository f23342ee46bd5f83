// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "plan/job_plan.h"
#include "tandem/v1/job.pb.h"

namespace tandem::plan {

// A small job as a user writes it, resolved: 4 layers, sequence 64, 2 ranks with 3 microbatches each.
v1::JobSpec TestJob(const std::string& parallelism = "{ranks: 2}",
                    const std::string& precision = "{compute: fp32}", const std::string& model_extra = "",
                    const std::string& model_type = "llama");

}  // namespace tandem::plan
