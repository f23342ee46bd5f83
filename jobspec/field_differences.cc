// SPDX-License-Identifier: Apache-2.0
#include "jobspec/field_differences.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "google/protobuf/descriptor.h"
#include "jobspec/schema.h"

namespace tandem::jobspec {

std::vector<FieldDifference> DifferencesOf(const google::protobuf::Message& there,
                                           const google::protobuf::Message& here, const std::string& path) {
  std::vector<FieldDifference> out;
  const google::protobuf::Descriptor& type = *here.GetDescriptor();
  for (int i = 0; i < type.field_count(); ++i) {
    const google::protobuf::FieldDescriptor* const field = type.field(i);
    const std::string inner = JoinPath(path, field->name());
    if (field->is_repeated()) {
      const int theirs = there.GetReflection()->FieldSize(there, field);
      const int ours = here.GetReflection()->FieldSize(here, field);
      if (theirs != ours) {
        out.push_back({.field = inner,
                       .here = absl::StrCat("a list of ", ours),
                       .there = absl::StrCat("a list of ", theirs)});
        continue;
      }
      for (int i = 0; i < ours; ++i) {
        for (FieldDifference& difference :
             DifferencesOf(there.GetReflection()->GetRepeatedMessage(there, field, i),
                           here.GetReflection()->GetRepeatedMessage(here, field, i), EntryPath(inner, i))) {
          out.push_back(std::move(difference));
        }
      }
      continue;
    }
    if (field->message_type() != nullptr) {
      for (FieldDifference& difference :
           DifferencesOf(there.GetReflection()->GetMessage(there, field),
                         here.GetReflection()->GetMessage(here, field), inner)) {
        out.push_back(std::move(difference));
      }
      continue;
    }
    const std::string theirs = ValueText({&there, field});
    const std::string ours = ValueText({&here, field});
    if (theirs != ours) {
      out.push_back({.field = inner, .here = ours, .there = theirs});
    }
  }
  return out;
}

}  // namespace tandem::jobspec
