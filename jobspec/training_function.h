// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "jobspec/schema.h"
#include "tandem/v1/job.pb.h"

namespace tandem::jobspec {

// The training function of a job: the fields of a resolved spec that decide what a step does to given weights
// with given data. The seed, the data and the batch are excluded because trainer/resume_checks.h compares
// them, and fields that change only time or memory are excluded too.

// Writes these fields as a JSON object, whose keys are those of a job file: the number of steps, optimizer,
// schedule, clipping and frozen units of `training`; `precision`; and the losses, biases and capacity of
// routers in `model.moe`.
std::string TrainingFunctionText(const v1::Training& training, const v1::Precision& precision,
                                 const v1::Model& model);

// Reads what TrainingFunctionText wrote, as a spec with only these fields. Returns InvalidArgument if `text`
// is something else, or has a key or a value that this build does not know.
absl::StatusOr<v1::JobSpec> ReadTrainingFunction(const std::string& text);

// Lists the fields that differ between two specs of training functions: `there` from a checkpoint, `here` of
// this job. A field that `there` does not have is skipped, because the build that wrote `there` did not know
// the field. The number of steps is skipped if neither schedule depends on it. If the decays are of two
// kinds, the keys that only one kind has are skipped.
std::vector<FieldDifference> TrainingDifferences(const v1::JobSpec& there, const v1::JobSpec& here);

// Whether the learning rate falls until the last step, and so depends on the number of steps.
bool FallsUntilTheLastStep(v1::Decay decay);

}  // namespace tandem::jobspec
