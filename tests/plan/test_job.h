// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "plan/job_plan.h"
#include "schedules/simulate/device_profile.h"
#include "tandem/v1/job.pb.h"

namespace tandem::plan {

// A small job, resolved from the YAML that a user would write: 4 layers, sequence 64, 2 ranks with 3
// microbatches each.
v1::JobSpec TestJob(const std::string& parallelism = "{ranks: 2}",
                    const std::string& precision = "{compute: fp32}", const std::string& model_extra = "",
                    const std::string& model_type = "llama");

// A job in which four ranks share the experts of three layers, on GPUs.
v1::JobSpec SparseJob(const std::string& schedule, const std::string& chunks);

// Profiles of a device on which only compute takes time, and of one with a slow link.
schedules::DeviceProfile FastLink();
schedules::DeviceProfile SlowLink();

}  // namespace tandem::plan
