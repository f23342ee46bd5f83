// SPDX-License-Identifier: Apache-2.0
#include "controller/rpc/request_limits.h"

#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "platform/status_macros.h"

namespace tandem::controller {
namespace {

using google::protobuf::FieldDescriptor;
using google::protobuf::Message;

class Checker {
 public:
  explicit Checker(const RequestLimits& limits) : limits_(limits) {}

  absl::Status Check(const Message& message, const std::string& path) const {
    std::vector<const FieldDescriptor*> fields;
    message.GetReflection()->ListFields(message, &fields);
    for (const FieldDescriptor* field : fields) {
      const std::string name = absl::StrCat(path, path.empty() ? "" : ".", field->name());
      TANDEM_RETURN_IF_ERROR(field->is_repeated() ? CheckList(message, *field, name)
                                                  : CheckOne(message, *field, -1, name));
    }
    return absl::OkStatus();
  }

 private:
  absl::Status CheckList(const Message& message, const FieldDescriptor& field,
                         const std::string& name) const {
    const bool texts = field.type() == FieldDescriptor::TYPE_STRING;
    if (!texts && field.cpp_type() != FieldDescriptor::CPPTYPE_MESSAGE) {
      return absl::OkStatus();
    }
    const int size = message.GetReflection()->FieldSize(message, &field);
    if (size > limits_.list_entries) {
      return absl::InvalidArgumentError(
          absl::StrCat(name, ": ", size, " entries; allowed are at most ", limits_.list_entries));
    }
    for (int i = 0; i < size; ++i) {
      TANDEM_RETURN_IF_ERROR(CheckOne(message, field, i, name));
    }
    return absl::OkStatus();
  }

  // `index`: of a list; -1: the field is none.
  absl::Status CheckOne(const Message& message, const FieldDescriptor& field, int index,
                        const std::string& name) const {
    const google::protobuf::Reflection& reflection = *message.GetReflection();
    if (field.cpp_type() == FieldDescriptor::CPPTYPE_MESSAGE) {
      return Check(index < 0 ? reflection.GetMessage(message, &field)
                             : reflection.GetRepeatedMessage(message, &field, index),
                   name);
    }
    if (field.type() != FieldDescriptor::TYPE_STRING) {
      return absl::OkStatus();
    }
    std::string scratch;
    const size_t size = (index < 0 ? reflection.GetStringReference(message, &field, &scratch)
                                   : reflection.GetRepeatedStringReference(message, &field, index, &scratch))
                            .size();
    return size <= limits_.string_bytes
               ? absl::OkStatus()
               : absl::InvalidArgumentError(
                     absl::StrCat(name, ": ", size, " bytes; allowed are at most ", limits_.string_bytes));
  }

  const RequestLimits limits_;
};

}  // namespace

absl::Status CheckLimits(const Message& request, const RequestLimits& limits) {
  return Checker(limits).Check(request, "");
}

}  // namespace tandem::controller
