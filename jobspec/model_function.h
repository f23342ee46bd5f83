// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "tandem/v1/job.pb.h"

namespace tandem::jobspec {

// What a model's weights are weights of: the fields of the block `model` that decide which function they
// compute. Not what only makes or trains them (initial weights, routers' losses, experts' capacity, how
// biases move), nor where the fields came from. A field is of the function unless model_function.cc says
// otherwise.

// Those fields, and those that a config.json of the weights needs besides (max_position_embeddings,
// initializer_range), as a JSON object with the names of job files.
std::string ModelFunctionText(const v1::Model& resolved);

// The resolved model of such a text. InvalidArgument as below.
absl::StatusOr<v1::Model> ReadModelFunction(const std::string& there);

// What differs in the function that a checkpoint says and that of this job, each as "model.rope_theta is
// 500000, and 10000 there". A field that the text does not have is what it is by default: the build that
// wrote it did not know it. InvalidArgument where it is no such text, or has a field that this build does not
// know.
absl::StatusOr<std::vector<std::string>> ModelDifferences(const std::string& there,
                                                          const v1::Model& resolved);

}  // namespace tandem::jobspec
