// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "jobspec/schema.h"
#include "tandem/v1/job.pb.h"

namespace tandem::jobspec {

// How a job trains its weights: the fields of a resolved spec that decide what a step makes of the same text
// and the same weights. The seed, the text and the batch are excluded because trainer/resume_checks.h
// compares them, and fields that only make a step cheaper are excluded too.

// These fields as a JSON object with the names of job files: the length, optimizer, schedule, clipping and
// frozen units of `training`; `precision`; and the losses, biases and capacity of routers in `model.moe`.
std::string TrainingFunctionText(const v1::Training& training, const v1::Precision& precision,
                                 const v1::Model& model);

// The inverse: the spec of such a text, with only these fields. Returns InvalidArgument if it is not such a
// text, or has a word that this build does not know.
absl::StatusOr<v1::JobSpec> ReadTrainingFunction(const std::string& text);

// The fields that differ between two such specs. A field that `there` does not have is skipped, because the
// build that wrote it did not know the field. The length is skipped if neither schedule depends on it, and so
// is a key that another kind of decay does not have.
std::vector<FieldDifference> TrainingDifferences(const v1::JobSpec& there, const v1::JobSpec& here);

// Whether the learning rate reaches its minimum in the last step, and so depends on the number of steps.
bool FallsUntilTheLastStep(v1::Decay decay);

}  // namespace tandem::jobspec
