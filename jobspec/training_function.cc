// SPDX-License-Identifier: Apache-2.0
#include "jobspec/training_function.h"

#include <stdexcept>

#include "absl/strings/str_cat.h"
#include "google/protobuf/descriptor.h"
#include "google/protobuf/util/json_util.h"

namespace tandem::jobspec {
namespace {

// Takes from `here` what `there` does not have.
void KeepFieldsOf(const google::protobuf::Message& there, google::protobuf::Message& here) {
  const google::protobuf::Reflection& reflection = *here.GetReflection();
  const google::protobuf::Descriptor& type = *here.GetDescriptor();
  for (int i = 0; i < type.field_count(); ++i) {
    const google::protobuf::FieldDescriptor* const field = type.field(i);
    if (field->is_repeated() || !reflection.HasField(here, field)) {
      continue;
    }
    if (!reflection.HasField(there, field)) {
      reflection.ClearField(&here, field);
    } else if (field->message_type() != nullptr) {
      KeepFieldsOf(reflection.GetMessage(there, field), *reflection.MutableMessage(&here, field));
    }
  }
}

}  // namespace

bool FallsUntilTheLastStep(v1::Decay decay) {
  return decay == v1::DECAY_COSINE || decay == v1::DECAY_LINEAR || decay == v1::DECAY_WSD;
}

std::string TrainingFunctionText(const v1::Training& training, const v1::Precision& precision,
                                 const v1::Model& model) {
  v1::JobSpec spec;
  v1::Training& of_training = *spec.mutable_training();
  of_training = training;
  of_training.clear_sequence_length();
  of_training.clear_micro_batch_size();
  of_training.clear_global_batch_size();
  of_training.clear_seed();
  of_training.clear_validate_every_steps();
  of_training.clear_validation_batches();
  of_training.clear_nonfinite_gradients();
  of_training.clear_recompute();
  *spec.mutable_precision() = precision;
  spec.mutable_precision()->clear_deterministic();
  if (model.has_moe()) {
    const v1::MixtureOfExperts& moe = model.moe();
    v1::MixtureOfExperts& of_moe = *spec.mutable_model()->mutable_moe();
    of_moe.set_router_aux_loss_coef(moe.router_aux_loss_coef());
    of_moe.set_router_aux_loss_scope(moe.router_aux_loss_scope());
    of_moe.set_router_z_loss_coef(moe.router_z_loss_coef());
    of_moe.set_router_bias_update_rate(moe.router_bias_update_rate());
    of_moe.set_capacity_factor(moe.capacity_factor());
    of_moe.set_drop_policy(moe.drop_policy());
  }
  google::protobuf::util::JsonPrintOptions options;
  options.preserve_proto_field_names = true;
  std::string text;
  const auto printed = google::protobuf::util::MessageToJsonString(spec, &text, options);
  if (!printed.ok()) {  // a name that is not UTF-8, which Validate has refused
    throw std::logic_error(absl::StrCat("a training that JSON cannot say: ", printed.ToString()));
  }
  return text;
}

absl::StatusOr<v1::JobSpec> ReadTrainingFunction(const std::string& text) {
  google::protobuf::util::JsonParseOptions options;
  options.ignore_unknown_fields = true;
  v1::JobSpec spec;
  const auto read = google::protobuf::util::JsonStringToMessage(text, &spec, options);
  if (!read.ok()) {
    return absl::InvalidArgumentError(
        absl::StrCat("what it says of its training is of another build (", std::string(read.message()), ")"));
  }
  return spec;
}

std::vector<FieldDifference> TrainingDifferences(const v1::JobSpec& there, const v1::JobSpec& here) {
  v1::JobSpec known = here;
  KeepFieldsOf(there, known);
  std::vector<FieldDifference> out = DifferencesOf(there, known, "");
  const v1::Decay decay = here.training().schedule().decay();
  const v1::Decay before = there.training().schedule().decay();
  const bool steps_count = FallsUntilTheLastStep(decay) || FallsUntilTheLastStep(before);
  const bool keys_count = decay == before;  // those of wsd: another decay has none
  std::erase_if(out, [&](const FieldDifference& difference) {
    const std::string& field = difference.field;
    return (!steps_count && field == "training.steps") ||
           (!keys_count && field.starts_with("training.schedule.decay_"));
  });
  return out;
}

}  // namespace tandem::jobspec
