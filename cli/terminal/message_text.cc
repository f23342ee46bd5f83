// SPDX-License-Identifier: Apache-2.0
#include "cli/terminal/message_text.h"

#include "absl/strings/ascii.h"
#include "absl/strings/escaping.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "google/protobuf/descriptor.h"
#include "google/protobuf/duration.pb.h"
#include "google/protobuf/timestamp.pb.h"
#include "nlohmann/json.hpp"
#include "proto/names.h"
#include "proto/time.h"

namespace tandem::cli {
namespace {

using google::protobuf::EnumValueDescriptor;
using google::protobuf::FieldDescriptor;
using google::protobuf::Message;
using google::protobuf::Reflection;
using Json = nlohmann::ordered_json;

// JOB_STATE_RUNNING → RUNNING: the prefix is the type's name in capitals.
std::string EnumText(const EnumValueDescriptor& value) {
  std::string text = proto::ValueName(*value.type(), value.number());
  if (value.file()->name() == "tandem/v1/job.proto") {
    absl::AsciiStrToLower(&text);
  }
  return text;
}

Json MessageToJson(const Message& message);

// index < 0: a singular field.
Json FieldToJson(const Message& message, const FieldDescriptor& field, int index) {
  const Reflection& reflection = *message.GetReflection();
  const auto get = [&](auto singular, auto repeated) {
    return index < 0 ? (reflection.*singular)(message, &field)
                     : (reflection.*repeated)(message, &field, index);
  };
  switch (field.cpp_type()) {
    case FieldDescriptor::CPPTYPE_INT32:
      return get(&Reflection::GetInt32, &Reflection::GetRepeatedInt32);
    case FieldDescriptor::CPPTYPE_INT64:
      return get(&Reflection::GetInt64, &Reflection::GetRepeatedInt64);
    case FieldDescriptor::CPPTYPE_UINT32:
      return get(&Reflection::GetUInt32, &Reflection::GetRepeatedUInt32);
    case FieldDescriptor::CPPTYPE_UINT64:
      return get(&Reflection::GetUInt64, &Reflection::GetRepeatedUInt64);
    case FieldDescriptor::CPPTYPE_FLOAT:
      return get(&Reflection::GetFloat, &Reflection::GetRepeatedFloat);
    case FieldDescriptor::CPPTYPE_DOUBLE:
      return get(&Reflection::GetDouble, &Reflection::GetRepeatedDouble);
    case FieldDescriptor::CPPTYPE_BOOL:
      return get(&Reflection::GetBool, &Reflection::GetRepeatedBool);
    case FieldDescriptor::CPPTYPE_ENUM:
      return EnumText(*get(&Reflection::GetEnum, &Reflection::GetRepeatedEnum));
    case FieldDescriptor::CPPTYPE_STRING: {
      const std::string text = get(&Reflection::GetString, &Reflection::GetRepeatedString);
      return field.type() == FieldDescriptor::TYPE_BYTES ? absl::Base64Escape(text) : text;
    }
    case FieldDescriptor::CPPTYPE_MESSAGE:
      return MessageToJson(index < 0 ? reflection.GetMessage(message, &field)
                                     : reflection.GetRepeatedMessage(message, &field, index));
  }
  return nullptr;
}

Json MessageToJson(const Message& message) {
  if (message.GetDescriptor()->full_name() == "google.protobuf.Timestamp") {
    google::protobuf::Timestamp time;
    time.CopyFrom(message);
    return absl::FormatTime("%Y-%m-%dT%H:%M:%E*SZ", proto::FromProto(time), absl::UTCTimeZone());
  }
  if (message.GetDescriptor()->full_name() == "google.protobuf.Duration") {
    google::protobuf::Duration span;
    span.CopyFrom(message);
    return absl::FormatDuration(proto::FromProto(span));
  }
  Json object = Json::object();
  std::vector<const FieldDescriptor*> fields;
  message.GetReflection()->ListFields(message, &fields);
  for (const FieldDescriptor* field : fields) {
    if (field->is_map()) {
      Json entries = Json::object();
      const int size = message.GetReflection()->FieldSize(message, field);
      for (int i = 0; i < size; ++i) {
        const Message& entry = message.GetReflection()->GetRepeatedMessage(message, field, i);
        const std::string key = FieldToJson(entry, *entry.GetDescriptor()->map_key(), -1).get<std::string>();
        entries[key] = FieldToJson(entry, *entry.GetDescriptor()->map_value(), -1);
      }
      object[field->name()] = std::move(entries);
    } else if (field->is_repeated()) {
      Json list = Json::array();
      const int size = message.GetReflection()->FieldSize(message, field);
      for (int i = 0; i < size; ++i) {
        list.push_back(FieldToJson(message, *field, i));
      }
      object[field->name()] = std::move(list);
    } else {
      object[field->name()] = FieldToJson(message, *field, -1);
    }
  }
  return object;
}

std::string Dump(const Json& json, int indent) {
  return json.dump(indent, ' ', false, nlohmann::json::error_handler_t::replace);
}

// Plain words need no quotes in YAML; anything else is written as JSON, which YAML reads.
std::string YamlScalar(const Json& json) {
  if (!json.is_string()) {
    return Dump(json, -1);
  }
  const std::string& text = json.get_ref<const std::string&>();
  bool plain = !text.empty() && absl::ascii_isalpha(text[0]);
  for (const char c : text) {
    plain = plain && (absl::ascii_isalnum(c) || c == '-' || c == '_' || c == '/' || c == '.');
  }
  for (const absl::string_view word : {"true", "false", "null", "yes", "no", "on", "off", "y", "n"}) {
    plain = plain && !absl::EqualsIgnoreCase(text, word);
  }
  const bool path =
      !text.empty() && text[0] == '/' && text.find_first_of(" #:\"'\n\t\\") == std::string::npos;
  return plain || path ? text : Dump(json, -1);
}

void AppendYaml(const Json& object, int indent, std::string& out) {
  for (const auto& [key, value] : object.items()) {
    absl::StrAppend(&out, std::string(static_cast<size_t>(indent), ' '), key, ":");
    if (value.is_object() && !value.empty()) {
      absl::StrAppend(&out, "\n");
      AppendYaml(value, indent + 2, out);
    } else {
      absl::StrAppend(&out, " ", YamlScalar(value), "\n");
    }
  }
}

}  // namespace

std::string YamlText(const std::string& text) { return YamlScalar(Json(text)); }

std::string ToJson(const Message& message, int indent) { return Dump(MessageToJson(message), indent); }

std::string ToYaml(const Message& message, int indent) {
  std::string out;
  AppendYaml(MessageToJson(message), indent, out);
  return out;
}

std::string ToYamlItem(const Message& message) {
  std::string text = ToYaml(message, 2);
  if (text.empty()) {
    return "- {}\n";
  }
  text[0] = '-';
  return text;
}

std::string StateText(v1::JobState state) { return proto::ValueName(state); }

std::vector<std::string> StateNames() {
  std::vector<std::string> names;
  for (int state = v1::JOB_STATE_UNSPECIFIED + 1; state <= v1::JobState_MAX; ++state) {
    names.push_back(StateText(static_cast<v1::JobState>(state)));
  }
  return names;
}

std::string ClassText(v1::FailureClass failure) {
  return absl::StrReplaceAll(proto::LowerName(failure), {{"_", " "}});
}

std::string DeviceText(v1::Device device) {
  return device == v1::DEVICE_UNSPECIFIED ? "" : proto::LowerName(device);
}

bool HasEnded(v1::JobState state) {
  return state == v1::JOB_STATE_SUCCEEDED || state == v1::JOB_STATE_FAILED ||
         state == v1::JOB_STATE_CANCELLED;
}

}  // namespace tandem::cli
