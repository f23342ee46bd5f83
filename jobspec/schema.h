// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "google/protobuf/message.h"
#include "tandem/v1/job.pb.h"

namespace tandem::jobspec {

// Maps the message JobSpec to YAML: the paths of fields ("training.optimizer.beta1",
// "data.sources[1].weight"), and the text of enums and values.

inline constexpr int kMostListEntries = 1000;

// How many violations of one job are collected.
inline constexpr size_t kMaxViolations = 1000;

// The name of an enum value without its type's prefix, in lower case: "STRATEGY_ZERO3" → "zero3".
std::string EnumText(const google::protobuf::EnumValueDescriptor& value);

// The texts of all values of an enum except the unspecified one, in the order of the proto.
std::vector<std::string> EnumTexts(const google::protobuf::EnumDescriptor& type);

// The enum value with this text; null if there is none. The unspecified value has no text.
const google::protobuf::EnumValueDescriptor* EnumValueOf(const google::protobuf::EnumDescriptor& type,
                                                         const std::string& text);

// The field at a path, with or without the indices of lists; null if there is none.
const google::protobuf::FieldDescriptor* FindField(std::string_view path);

// A field of a spec: the message that contains it and, for an entry of a list, its index. `message` is null
// if the spec does not have the field or the entry.
struct FieldValue {
  const google::protobuf::Message* message = nullptr;
  const google::protobuf::FieldDescriptor* field = nullptr;
  int index = -1;  // -1: the whole field
};
FieldValue FindValue(const v1::JobSpec& spec, std::string_view path);

// The value as in a job file; "{...}" for a block, "[...]" for a list.
std::string ValueText(const FieldValue& value);

// A field that differs between two messages of the same type.
struct FieldDifference {
  std::string field;  // path: "training.steps"
  std::string here;   // values, as a job file would have them
  std::string there;
};

// The fields that differ between `here` and `there`, in the order of the proto; `path` is the path of both in
// a spec. A field that is not set, and each field of an absent block, counts as its type's default.
std::vector<FieldDifference> DifferencesOf(const google::protobuf::Message& there,
                                           const google::protobuf::Message& here, const std::string& path);

// A key that sorts paths in the order of the proto: the field numbers and indices along the path, up to the
// first part that no field has.
std::vector<int> SchemaOrder(std::string_view path);

// Removes indices, because paths in the tables of rules have none: "data.sources[1].weight" →
// "data.sources.weight".
std::string WithoutIndices(std::string_view path);

// The paths in `spec` of a path without indices: if it crosses a list, one for each entry of the list,
// otherwise the path itself.
std::vector<std::string> PathsOf(const v1::JobSpec& spec, const std::string& path);

// The path of a list entry: "data.sources", 1 → "data.sources[1]".
std::string EntryPath(const std::string& list, int index);

// The paths of fields that this build does not know, at most one for each block: "training.#77".
std::vector<std::string> UnknownFields(const google::protobuf::Message& message,
                                       const std::string& path = "");

std::string JoinPath(const std::string& parent, const std::string& key);

// The keys of a block, in the order of the proto.
std::vector<std::string> Keys(const google::protobuf::Descriptor& type);

// For a wrong `key` in the block `parent`, the path that the user most likely meant: another key of the
// block, the path for which `key` is a known synonym, or the same key in another block. Empty if nothing is
// close.
std::string SuggestPath(const std::string& parent, const google::protobuf::Descriptor& type,
                        const std::string& key);

// The candidate closest to `word`; empty if none is close.
std::string Closest(const std::string& word, const std::vector<std::string>& candidates);

// The shortest text that is read as the same number.
std::string NumberText(double value);

}  // namespace tandem::jobspec
