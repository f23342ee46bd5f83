// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "google/protobuf/message.h"
#include "tandem/v1/job.pb.h"

namespace tandem::jobspec {

// How the message JobSpec looks in YAML: paths ("training.optimizer.beta1", "data.sources[1].weight"), the
// text of enums and values.

inline constexpr int kMostListEntries = 1000;

// Of one job: how many violations are collected.
inline constexpr size_t kMaxViolations = 1000;

// "STRATEGY_ZERO3" → "zero3": the name without its type's prefix, in lower case.
std::string EnumText(const google::protobuf::EnumValueDescriptor& value);

// The value of that text; null where there is none. The unspecified value has no text.
const google::protobuf::EnumValueDescriptor* EnumValueOf(const google::protobuf::EnumDescriptor& type,
                                                         const std::string& text);

// The field of a path, with or without the indices of lists; null where there is none.
const google::protobuf::FieldDescriptor* FindField(std::string_view path);

// A field that a spec has: the message that holds it, and of an entry of a list its index. message is null
// where the spec has not. A list without an entry is not there.
struct FieldValue {
  const google::protobuf::Message* message = nullptr;
  const google::protobuf::FieldDescriptor* field = nullptr;
  int index = -1;  // -1: the whole field
};
FieldValue FindValue(const v1::JobSpec& spec, std::string_view path);

// The value as one would write it; "{...}" for a block, "[...]" for a list.
std::string ValueText(const FieldValue& value);

// Field numbers and indices along the path, up to where it leaves the schema: sorts paths in the order of the
// proto.
std::vector<int> SchemaOrder(std::string_view path);

// "data.sources[1].weight" → "data.sources.weight": as the tables of rules have it.
std::string WithoutIndices(std::string_view path);

// The paths that a path without indices stands for: one for each entry of the list that it goes through. The
// path itself where it goes through none.
std::vector<std::string> PathsOf(const v1::JobSpec& spec, const std::string& path);

// "data.sources", 1 → "data.sources[1]".
std::string EntryPath(const std::string& list, int index);

// Paths of what a message has that this build does not know, the first of each block: "training.#77".
std::vector<std::string> UnknownFields(const google::protobuf::Message& message,
                                       const std::string& path = "");

std::string JoinPath(const std::string& parent, const std::string& key);

// Keys of a block, in the order of the proto.
std::vector<std::string> Keys(const google::protobuf::Descriptor& type);

// The path that a user who wrote `key` in the block `parent` most likely meant: a sibling, a well-known other
// name, or the same key in another block. Empty where nothing is close.
std::string SuggestPath(const std::string& parent, const google::protobuf::Descriptor& type,
                        const std::string& key);

// The candidate closest to `word`; empty where none is close.
std::string Closest(const std::string& word, const std::vector<std::string>& candidates);

// Shortest text that reads back as the same number.
std::string NumberText(double value);

}  // namespace tandem::jobspec
