// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "jobspec/field_differences.h"
#include "tandem/v1/job.pb.h"

namespace tandem::jobspec {

// How a job trains its weights: the fields of a resolved spec that decide what a step makes of the same text
// and the same weights. Not the seed, the text and the batch, which say so themselves
// (trainer/resume_checks.h), and not what only makes a step cheaper.

// Those fields, as a JSON object with the names of job files: of `training` the length, the optimizer, the
// schedule, clipping and frozen units; `precision`; of `model.moe` the losses, biases and capacity of
// routers.
std::string TrainingFunctionText(const v1::Training& training, const v1::Precision& precision,
                                 const v1::Model& model);

// The spec of such a text, which has these fields alone. InvalidArgument where it is no such text, or has a
// word that this build does not know.
absl::StatusOr<v1::JobSpec> ReadTrainingFunction(const std::string& text);

// What differs in two of them. A field that `there` does not have counts for nothing: the build that wrote it
// did not know it. Nor does the length where neither schedule depends on it, nor a key that another decay
// does not have.
std::vector<FieldDifference> TrainingDifferences(const v1::JobSpec& there, const v1::JobSpec& here);

// Whether the learning rate is at its minimum in the last step, and so depends on how many steps there are.
bool FallsUntilTheLastStep(v1::Decay decay);

}  // namespace tandem::jobspec
