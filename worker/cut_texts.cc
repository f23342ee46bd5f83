// SPDX-License-Identifier: Apache-2.0
#include "worker/cut_texts.h"

#include <string>
#include <vector>

namespace tandem::worker {
namespace {

using google::protobuf::FieldDescriptor;
using google::protobuf::Message;
using google::protobuf::Reflection;

// Requires valid UTF-8.
std::string Cut(const std::string& text, size_t max_bytes) {
  constexpr char kEnd[] = "...";
  size_t size = max_bytes - (sizeof(kEnd) - 1);
  while (size > 0 && (static_cast<unsigned char>(text[size]) & 0xc0) == 0x80) {
    --size;
  }
  return text.substr(0, size) + kEnd;
}

}  // namespace

void CutTexts(Message& message, size_t max_bytes) {
  const Reflection& reflection = *message.GetReflection();
  std::vector<const FieldDescriptor*> fields;
  reflection.ListFields(message, &fields);
  for (const FieldDescriptor* field : fields) {
    const bool is_message = field->cpp_type() == FieldDescriptor::CPPTYPE_MESSAGE;
    const bool is_list = field->is_repeated();
    if (field->is_map() || (!is_message && field->type() != FieldDescriptor::TYPE_STRING)) {
      continue;
    }
    const int size = is_list ? reflection.FieldSize(message, field) : 1;
    for (int i = 0; i < size; ++i) {
      if (is_message) {
        CutTexts(is_list ? *reflection.MutableRepeatedMessage(&message, field, i)
                         : *reflection.MutableMessage(&message, field),
                 max_bytes);
        continue;
      }
      std::string copy;  // unused: strings are held by the message
      const std::string& text = is_list ? reflection.GetRepeatedStringReference(message, field, i, &copy)
                                        : reflection.GetStringReference(message, field, &copy);
      if (text.size() > max_bytes && is_list) {
        reflection.SetRepeatedString(&message, field, i, Cut(text, max_bytes));
      } else if (text.size() > max_bytes) {
        reflection.SetString(&message, field, Cut(text, max_bytes));
      }
    }
  }
}

}  // namespace tandem::worker
