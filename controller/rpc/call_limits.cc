// SPDX-License-Identifier: Apache-2.0
#include "controller/rpc/call_limits.h"

#include <algorithm>
#include <iterator>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "platform/status_macros.h"

namespace tandem::controller {
namespace {

using google::protobuf::FieldDescriptor;
using google::protobuf::Message;

absl::Status Check(const Message& message, const RequestLimits& limits, const std::string& path);

// Checks the field, or entry `index` if it is a list.
absl::Status CheckOne(const Message& message, const FieldDescriptor& field, int index,
                      const RequestLimits& limits, const std::string& path) {
  const google::protobuf::Reflection& reflection = *message.GetReflection();
  if (field.cpp_type() == FieldDescriptor::CPPTYPE_MESSAGE) {
    return Check(field.is_repeated() ? reflection.GetRepeatedMessage(message, &field, index)
                                     : reflection.GetMessage(message, &field),
                 limits, path);
  }
  std::string scratch;
  const size_t size =
      (field.is_repeated() ? reflection.GetRepeatedStringReference(message, &field, index, &scratch)
                           : reflection.GetStringReference(message, &field, &scratch))
          .size();
  return size <= limits.string_bytes
             ? absl::OkStatus()
             : absl::InvalidArgumentError(
                   absl::StrCat(path, ": ", size, " bytes; allowed are at most ", limits.string_bytes));
}

absl::Status Check(const Message& message, const RequestLimits& limits, const std::string& path) {
  std::vector<const FieldDescriptor*> fields;
  message.GetReflection()->ListFields(message, &fields);
  for (const FieldDescriptor* field : fields) {
    if (field->type() != FieldDescriptor::TYPE_STRING &&
        field->cpp_type() != FieldDescriptor::CPPTYPE_MESSAGE) {
      continue;
    }
    const std::string name = absl::StrCat(path, path.empty() ? "" : ".", field->name());
    const int size = field->is_repeated() ? message.GetReflection()->FieldSize(message, field) : 1;
    if (size > limits.list_entries) {
      return absl::InvalidArgumentError(
          absl::StrCat(name, ": ", size, " entries; allowed are at most ", limits.list_entries));
    }
    for (int i = 0; i < size; ++i) {
      TANDEM_RETURN_IF_ERROR(CheckOne(message, *field, i, limits, name));
    }
  }
  return absl::OkStatus();
}

}  // namespace

absl::Duration RateLimit::Take(const std::string& key) {
  const absl::Time now = clock_.Now();
  const absl::Duration refill = absl::Seconds(burst_ / per_second_);
  const absl::MutexLock lock(&mu_);
  if (now - swept_ > refill) {
    swept_ = now;
    for (auto it = buckets_.begin(); it != buckets_.end();) {
      it = now - it->second.at > refill ? buckets_.erase(it) : std::next(it);
    }
  }
  Bucket& bucket = buckets_.try_emplace(key, Bucket{.tokens = burst_, .at = now}).first->second;
  bucket.tokens = std::min(burst_, bucket.tokens + absl::ToDoubleSeconds(now - bucket.at) * per_second_);
  bucket.at = now;
  if (bucket.tokens < 1) {
    return absl::Seconds((1 - bucket.tokens) / per_second_);
  }
  bucket.tokens -= 1;
  return absl::ZeroDuration();
}

absl::Status CheckLimits(const Message& request, const RequestLimits& limits) {
  return Check(request, limits, "");
}

}  // namespace tandem::controller
