// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "tandem/v1/job.pb.h"

namespace tandem::jobspec {

// The function that a model computes with given weights: all fields of the block `model` except those that
// model_function.cc excludes. The excluded fields only initialise or train the weights (initial weights,
// routers' losses, experts' capacity, how biases move), change only how results are rounded (chunk sizes),
// state the longest sequence, or say where other fields came from (preset, config.json).

// Writes the fields of the function, and with them what else a config.json of the weights needs (chunk sizes,
// max_position_embeddings, initializer_range), as a JSON object whose keys are those of a job file.
std::string ModelFunctionText(const v1::Model& resolved);

// Reads what ModelFunctionText wrote, as a resolved model. Returns InvalidArgument if `there` is something
// else, or has a field that this build does not know.
absl::StatusOr<v1::Model> ReadModelFunction(const std::string& there);

// Lists the differences between the function in a checkpoint (`there`, which ModelFunctionText wrote) and the
// function of this job, each as "model.rope_theta is 500000, and 10000 there". A field that `there` does not
// have counts as its default, because the build that wrote it did not know the field. Returns InvalidArgument
// as ReadModelFunction does.
absl::StatusOr<std::vector<std::string>> ModelDifferences(const std::string& there,
                                                          const v1::Model& resolved);

}  // namespace tandem::jobspec
