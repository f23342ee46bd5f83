// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "google/protobuf/message.h"
#include "tandem/v1/state.pb.h"

namespace tandem::cli {

// Returns a message as JSON: keys are the proto's field names, numbers are numbers, times RFC 3339 in UTC.
// Enum values lose their type's prefix; those of a job spec are in lower case, so that the result is a valid
// job file. Fields that are not set are left out. indent -1: one line, without newline at the end.
std::string ToJson(const google::protobuf::Message& message, int indent);

// Returns a text as a YAML scalar: in quotes unless it is a plain word.
std::string YamlText(const std::string& text);

// Returns a message as YAML in block style, with the keys and values of ToJson, each line behind `indent`
// spaces.
std::string ToYaml(const google::protobuf::Message& message, int indent);

// Return a list of messages as a file: in JSON with one element on each line, or in YAML.
template <typename Message>
std::string ToJsonList(const std::vector<Message>& messages) {
  std::string text = "[";
  for (size_t i = 0; i < messages.size(); ++i) {
    text += (i > 0 ? ",\n" : "\n") + ToJson(messages[i], -1);
  }
  return text + (messages.empty() ? "]\n" : "\n]\n");
}
std::string ToYamlItem(const google::protobuf::Message& message);
template <typename Message>
std::string ToYamlList(const std::vector<Message>& messages) {
  std::string text;
  for (const Message& message : messages) {
    text += ToYamlItem(message);
  }
  return messages.empty() ? "[]\n" : text;
}

// "RUNNING"
std::string StateText(v1::JobState state);

// The names of all states that a job can be in.
std::vector<std::string> StateNames();

// "infrastructure"
std::string ClassText(v1::FailureClass failure);
// "cpu"
std::string DeviceText(v1::Device device);

bool HasEnded(v1::JobState state);

}  // namespace tandem::cli
