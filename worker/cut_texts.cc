// SPDX-License-Identifier: Apache-2.0
#include "worker/cut_texts.h"

#include <string>
#include <vector>

namespace tandem::worker {
namespace {

using google::protobuf::FieldDescriptor;
using google::protobuf::Message;
using google::protobuf::Reflection;

// `text` is valid UTF-8.
std::string Cut(const std::string& text, size_t max_bytes) {
  constexpr char kEnd[] = "...";
  size_t size = max_bytes - (sizeof(kEnd) - 1);
  while (size > 0 && (static_cast<unsigned char>(text[size]) & 0xc0) == 0x80) {
    --size;
  }
  return text.substr(0, size) + kEnd;
}

// `index`: of a list; -1: the field is none.
void CutText(Message& message, const FieldDescriptor& field, int index, size_t max_bytes) {
  const Reflection& reflection = *message.GetReflection();
  std::string scratch;
  const std::string& text = index < 0
                                ? reflection.GetStringReference(message, &field, &scratch)
                                : reflection.GetRepeatedStringReference(message, &field, index, &scratch);
  if (text.size() <= max_bytes) {
    return;
  }
  if (index < 0) {
    reflection.SetString(&message, &field, Cut(text, max_bytes));
  } else {
    reflection.SetRepeatedString(&message, &field, index, Cut(text, max_bytes));
  }
}

}  // namespace

void CutTexts(Message& message, size_t max_bytes) {
  const Reflection& reflection = *message.GetReflection();
  std::vector<const FieldDescriptor*> fields;
  reflection.ListFields(message, &fields);
  for (const FieldDescriptor* field : fields) {
    const bool is_message = field->cpp_type() == FieldDescriptor::CPPTYPE_MESSAGE;
    if (field->is_map() || (!is_message && field->type() != FieldDescriptor::TYPE_STRING)) {
      continue;
    }
    const int size = field->is_repeated() ? reflection.FieldSize(message, field) : 1;
    for (int i = 0; i < size; ++i) {
      if (!is_message) {
        CutText(message, *field, field->is_repeated() ? i : -1, max_bytes);
      } else if (field->is_repeated()) {
        CutTexts(*reflection.MutableRepeatedMessage(&message, field, i), max_bytes);
      } else {
        CutTexts(*reflection.MutableMessage(&message, field), max_bytes);
      }
    }
  }
}

}  // namespace tandem::worker
