// SPDX-License-Identifier: Apache-2.0
#include "jobspec/hugging_face_fields.h"

#include <algorithm>
#include <cstdint>
#include <limits>

#include "jobspec/model_types.h"
#include "platform/check.h"

namespace tandem::jobspec {
namespace {

using google::protobuf::FieldDescriptor;

constexpr FieldKey kMamba2Keys[] = {{"num_heads"}, {"head_dim"},    {"state_size"},
                                    {"n_groups"},  {"conv_kernel"}, {"chunk_size"}};
constexpr FieldKey kPairedMixerKeys[] = {{"num_heads", "mamba_n_heads"},  {"head_dim", "mamba_d_head"},
                                         {"state_size", "mamba_d_state"}, {"n_groups", "mamba_n_groups"},
                                         {"conv_kernel", "mamba_d_conv"}, {"chunk_size", "mamba_chunk_size"}};
constexpr FieldKey kMixerKeys[] = {{"num_heads", "mamba_num_heads"},
                                   {"head_dim", "mamba_head_dim"},
                                   {"state_size", "ssm_state_size"},
                                   {"n_groups"},
                                   {"conv_kernel"},
                                   {"chunk_size"}};

}  // namespace

FieldKeys MixerKeysOf(std::string_view model_type) {
  if (model_type == "mamba2") {
    return kMamba2Keys;
  }
  return FindModelType(model_type)->pairs ? FieldKeys(kPairedMixerKeys) : FieldKeys(kMixerKeys);
}

bool IsFieldKey(std::string_view key) {
  for (const FieldKeys fields :
       {FieldKeys(kSizeKeys), FieldKeys(kOtherKeys), FieldKeys(kLatentAttentionKeys), FieldKeys(kExpertKeys),
        FieldKeys(kSparseLayerKeys), FieldKeys(kDeepseekExpertKeys), FieldKeys(kGroupedExpertKeys)}) {
    if (std::any_of(fields.begin(), fields.end(), [&](const FieldKey& field) { return field.key == key; })) {
      return true;
    }
  }
  return false;
}

std::string SetField(google::protobuf::Message& message, std::string_view field,
                     const nlohmann::json& value) {
  const FieldDescriptor& type = *message.GetDescriptor()->FindFieldByName(std::string(field));
  const google::protobuf::Reflection& reflection = *message.GetReflection();
  switch (type.cpp_type()) {
    case FieldDescriptor::CPPTYPE_BOOL:
      if (!value.is_boolean()) {
        return "true, false";
      }
      reflection.SetBool(&message, &type, value.get<bool>());
      return "";
    case FieldDescriptor::CPPTYPE_DOUBLE:
      if (!value.is_number()) {
        return "a number";
      }
      reflection.SetDouble(&message, &type, value.get<double>());
      return "";
    default:
      break;
  }
  const bool is_int32 = type.cpp_type() == FieldDescriptor::CPPTYPE_INT32;
  TANDEM_CHECK(is_int32 || type.cpp_type() == FieldDescriptor::CPPTYPE_INT64,
               "a field of a model is an integer, a number or a flag");
  const bool fits =
      value.is_number_integer() &&
      !(value.is_number_unsigned() && value.get<uint64_t>() > uint64_t{std::numeric_limits<int64_t>::max()});
  const int64_t number = fits ? value.get<int64_t>() : 0;
  if (!fits || (is_int32 && number != static_cast<int32_t>(number))) {
    return "an integer";
  }
  if (is_int32) {
    reflection.SetInt32(&message, &type, static_cast<int32_t>(number));
  } else {
    reflection.SetInt64(&message, &type, number);
  }
  return "";
}

void WriteFields(FieldKeys fields, const google::protobuf::Message& message, nlohmann::ordered_json& config) {
  const google::protobuf::Reflection& reflection = *message.GetReflection();
  for (const FieldKey& field : fields) {
    const FieldDescriptor* const type = message.GetDescriptor()->FindFieldByName(field.field);
    if (!reflection.HasField(message, type)) {
      continue;
    }
    switch (type->cpp_type()) {
      case FieldDescriptor::CPPTYPE_BOOL:
        config[field.key] = reflection.GetBool(message, type);
        break;
      case FieldDescriptor::CPPTYPE_DOUBLE:
        config[field.key] = reflection.GetDouble(message, type);
        break;
      case FieldDescriptor::CPPTYPE_INT32:
        config[field.key] = reflection.GetInt32(message, type);
        break;
      default:
        config[field.key] = reflection.GetInt64(message, type);
    }
  }
}

}  // namespace tandem::jobspec
