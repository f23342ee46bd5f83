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

// The tensors of the whole decoder as Hugging Face's models have them, in the order of layers. Biases of
// routers may be zeros: a job that has none does not save them.
std::vector<checkpoint::ExportedTensor> ExportedTensors(const model::DecoderConfig& config);

// config.json of weights that were trained, in the spelling of published files (transformers 4), which
// transformers 5 reads too. source: the config.json that lies in the job's folder `source`, whose further
// keys are kept where the weights came from there too (is_origin) and it is of their family; empty: there is
// none. dataset: the dataset.json of the text, whose token ids are written where `source` does not say them;
// empty: the text does not say any, and they are null unless `source` is kept. resolved: a model that Check
// accepts. trained_length: tokens of a sequence in training, for a model that does not say its longest.
// InvalidArgument where `source` is not a JSON object, or `dataset` no description of prepared data.
absl::StatusOr<std::string> ExportedConfig(const std::string& source, bool is_origin,
                                           const std::string& dataset, const v1::Model& resolved, bool bf16,
                                           int64_t trained_length);

}  // namespace tandem::jobspec
