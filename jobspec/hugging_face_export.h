// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "checkpoint/export_weights.h"
#include "model/config.h"
#include "tandem/v1/job.pb.h"

namespace tandem::jobspec {

// The tensors of the whole decoder under Hugging Face's names, in the order of layers. If the job's routers
// have no biases, but the family's files do, the biases are exported as zeros.
std::vector<checkpoint::ExportedTensor> ExportedTensors(const model::DecoderConfig& config);

// Returns the config.json of trained weights, with the keys of transformers 4, which transformers 5 reads
// too. Arguments:
// * source: the config.json in the job's folder `source`; empty: there is none. Its keys are kept, except
//   those that Tandem writes or that no longer hold, if training began from the weights of this config.json
//   (is_origin) and its family is that of `resolved`.
// * dataset: the dataset.json of the text; empty: there is none. Gives the ids of special tokens that the
//   kept keys do not have; an id that neither has is null if no keys were kept.
// * resolved: a model that Check accepts.
// * trained_length: the tokens of a training sequence; used if the model does not state its longest sequence.
// Returns InvalidArgument if `source` is not a JSON object, or if `dataset` does not describe prepared data.
absl::StatusOr<std::string> ExportedConfig(const std::string& source, bool is_origin,
                                           const std::string& dataset, const v1::Model& resolved, bool bf16,
                                           int64_t trained_length);

}  // namespace tandem::jobspec
