// SPDX-License-Identifier: Apache-2.0
#include "jobspec/model_function.h"

#include <stdexcept>

#include "absl/strings/str_cat.h"
#include "google/protobuf/util/json_util.h"
#include "jobspec/jobspec.h"
#include "jobspec/schema.h"
#include "platform/status_macros.h"

namespace tandem::jobspec {
namespace {

// The function, and beside it what a config.json of the weights says.
v1::Model ShownOf(v1::Model model) {
  model.clear_preset();
  model.clear_hugging_face();
  if (model.has_moe()) {
    v1::MixtureOfExperts& moe = *model.mutable_moe();
    moe.clear_router_aux_loss_coef();
    moe.clear_router_aux_loss_scope();
    moe.clear_router_z_loss_coef();
    moe.clear_router_bias_update_rate();
    moe.clear_capacity_factor();
    moe.clear_drop_policy();
    moe.clear_pad_to_capacity();
  }
  return model;
}

v1::Model FunctionOf(const v1::Model& model) {
  v1::Model function = ShownOf(model);
  function.clear_initializer_range();
  function.clear_max_position_embeddings();
  if (function.has_mamba()) {
    function.mutable_mamba()->clear_chunk_size();  // of roundings alone
  }
  if (function.has_gated_delta_net()) {
    function.mutable_gated_delta_net()->clear_chunk_size();
  }
  return function;
}

}  // namespace

std::string ModelFunctionText(const v1::Model& resolved) {
  google::protobuf::util::JsonPrintOptions options;
  options.preserve_proto_field_names = true;
  std::string text;
  const auto printed = google::protobuf::util::MessageToJsonString(ShownOf(resolved), &text, options);
  if (!printed.ok()) {  // a name that is not UTF-8, which Validate has refused
    throw std::logic_error(absl::StrCat("a model that JSON cannot say: ", printed.ToString()));
  }
  return text;
}

absl::StatusOr<v1::Model> ReadModelFunction(const std::string& there) {
  v1::JobSpec spec;
  const auto read = google::protobuf::util::JsonStringToMessage(there, spec.mutable_model());
  if (!read.ok()) {
    return absl::InvalidArgumentError(absl::StrCat("what it says of its model is of another build (",
                                                   std::string(read.message()),
                                                   "); use the build that wrote it or a newer one"));
  }
  return Resolve(spec).model();
}

absl::StatusOr<std::vector<std::string>> ModelDifferences(const std::string& there,
                                                          const v1::Model& resolved) {
  TANDEM_ASSIGN_OR_RETURN(const v1::Model theirs, ReadModelFunction(there));
  std::vector<std::string> differences;
  for (const FieldDifference& difference : DifferencesOf(FunctionOf(theirs), FunctionOf(resolved), "model")) {
    differences.push_back(
        absl::StrCat(difference.field, " is ", difference.here, ", and ", difference.there, " there"));
  }
  return differences;
}

}  // namespace tandem::jobspec
