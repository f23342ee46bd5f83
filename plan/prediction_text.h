// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "nlohmann/json.hpp"
#include "plan/job_plan.h"
#include "plan/prediction.h"
#include "schedules/simulate/device_profile.h"

namespace tandem::plan {

// The prediction as rows of text: profile, step time, tokens/s, share of the peak, busy and exposed times,
// the critical path by stream, the cost of memory waits, memory compared with the device's, and what saves
// take of a machine's memory. Lines end in "\n".
std::string PredictionToText(const JobPlan& plan, const Prediction& prediction,
                             const schedules::DeviceProfile& profile);

// The prediction as JSON: {profile{...}, step_seconds, saving_step_seconds (null: the job saves nothing),
// tokens_per_second, model_flops_utilization (null: the peak is unknown), busy_seconds{stream},
// compute_slowed_seconds, exposed_seconds, exposed_by_stream{stream}, stalls[]{stream, opcode, seconds},
// critical_path[], costs{}, memory_waits{count, freed_bytes, cost_seconds}, host_waits{count, waited_seconds,
// covered_seconds}, outside_bytes (null: the profile does not know), machine_memory{ranks, wanted_bytes,
// saved_bytes, needed_bytes} (null: the job saves nothing), timeline[{index, stream, what, start_ns,
// end_ns}], memory_curve[{ns, persistent, locals{kind}, in_use}]}.
nlohmann::json PredictionToJson(const JobPlan& plan, const Prediction& prediction,
                                const schedules::DeviceProfile& profile);

}  // namespace tandem::plan
