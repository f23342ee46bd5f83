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

// The tensors of the whole decoder under Hugging Face's names, in the order of layers. Biases of routers may
// be missing, because a job without them does not save them; they are written as zeros.
std::vector<checkpoint::ExportedTensor> ExportedTensors(const model::DecoderConfig& config);

// Writes config.json of trained weights, in the spelling of published files (transformers 4), which
// transformers 5 reads too. Arguments:
// * source: the config.json in the job's folder `source`; empty: there is none. Its further keys are kept if
//   the weights came from there too (is_origin) and it is of the same family.
// * dataset: the dataset.json of the text, whose token ids are written if `source` has none; empty: the text
//   has none, and they are null unless `source` is kept.
// * resolved: a model that Check accepts.
// * trained_length: tokens of a sequence in training, for a model that does not state its longest sequence.
// Returns InvalidArgument if `source` is not a JSON object, or if `dataset` does not describe prepared data.
absl::StatusOr<std::string> ExportedConfig(const std::string& source, bool is_origin,
                                           const std::string& dataset, const v1::Model& resolved, bool bf16,
                                           int64_t trained_length);

}  // namespace tandem::jobspec
