// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "tandem/v1/job.pb.h"

namespace tandem::jobspec {

// The function that a model's weights belong to: the fields of the block `model` that decide what it
// computes. Fields that only make or train the weights (initial weights, routers' losses, experts' capacity,
// how biases move) do not count, nor does where the fields came from. Any field belongs to the function
// unless model_function.cc excludes it.

// These fields, and those that a config.json of the weights needs besides (max_position_embeddings,
// initializer_range), as a JSON object with the names of job files.
std::string ModelFunctionText(const v1::Model& resolved);

// The inverse: the resolved model of such a text. Returns InvalidArgument as ModelDifferences does.
absl::StatusOr<v1::Model> ReadModelFunction(const std::string& there);

// The differences between the function in a checkpoint (`there`) and that of this job, each as
// "model.rope_theta is 500000, and 10000 there". A field that the text does not have counts as its default,
// because the build that wrote it did not know the field. Returns InvalidArgument if it is not such a text,
// or has a field that this build does not know.
absl::StatusOr<std::vector<std::string>> ModelDifferences(const std::string& there,
                                                          const v1::Model& resolved);

}  // namespace tandem::jobspec
