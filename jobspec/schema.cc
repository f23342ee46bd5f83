// SPDX-License-Identifier: Apache-2.0
#include "jobspec/schema.h"

#include <algorithm>
#include <charconv>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "google/protobuf/text_format.h"
#include "google/protobuf/unknown_field_set.h"
#include "proto/names.h"

namespace tandem::jobspec {
namespace {

using google::protobuf::Descriptor;
using google::protobuf::EnumDescriptor;
using google::protobuf::EnumValueDescriptor;
using google::protobuf::FieldDescriptor;
using google::protobuf::Message;

// Other names of the same thing, from tools that users come from.
constexpr struct {
  const char* key;
  const char* path;
} kSynonyms[] = {
    {"lr", "training.optimizer.learning_rate"},
    {"max_lr", "training.optimizer.learning_rate"},
    {"min_lr", "training.schedule.min_learning_rate"},
    {"warmup", "training.schedule.warmup_steps"},
    {"lr_scheduler", "training.schedule"},
    {"eps", "training.optimizer.epsilon"},
    {"max_steps", "training.steps"},
    {"num_steps", "training.steps"},
    {"train_iters", "training.steps"},
    {"iterations", "training.steps"},
    {"seq_len", "training.sequence_length"},
    {"seq_length", "training.sequence_length"},
    {"max_seq_len", "training.sequence_length"},
    {"batch_size", "training.micro_batch_size"},
    {"grad_clip", "training.clip_grad_norm"},
    {"max_grad_norm", "training.clip_grad_norm"},
    {"clip_grad", "training.clip_grad_norm"},
    {"world_size", "parallelism.ranks"},
    {"gpus", "parallelism.ranks"},
    {"num_gpus", "parallelism.ranks"},
    {"nproc", "parallelism.ranks"},
    {"tp", "parallelism.tensor"},
    {"cp", "parallelism.context"},
    {"pp", "parallelism.pipeline"},
    {"ep", "parallelism.expert"},
    {"zero", "parallelism.fsdp.strategy"},
    {"dtype", "precision.compute"},
    {"num_layers", "model.num_hidden_layers"},
    {"n_layers", "model.num_hidden_layers"},
    {"num_heads", "model.num_attention_heads"},
    {"dataset", "data.train"},
    {"save_dir", "checkpoint.directory"},
    {"output_dir", "checkpoint.directory"},
    {"save_interval", "checkpoint.every_steps"},
    {"resume_from", "checkpoint.resume"},
    {"init_from", "checkpoint.start_from"},
    {"pretrained", "checkpoint.start_from"},
    {"model_name_or_path", "checkpoint.start_from"},
};

// Other names of a value.
constexpr struct {
  const char* text;
  const char* value;
} kValueSynonyms[] = {
    {"gpu", "cuda"},     {"nvidia", "cuda"}, {"bfloat16", "bf16"}, {"float32", "fp32"},
    {"float64", "fp64"}, {"fsdp", "zero3"},  {"zero4", "zero3"},   {"ddp", "replicate"},
};

// Insertions, deletions, substitutions and swaps of neighbours that turn one word into the other.
int EditDistance(const std::string& a, const std::string& b) {
  std::vector<std::vector<int>> cost(a.size() + 1, std::vector<int>(b.size() + 1));
  for (size_t i = 0; i <= a.size(); ++i) {
    for (size_t j = 0; j <= b.size(); ++j) {
      if (i == 0 || j == 0) {
        cost[i][j] = static_cast<int>(i + j);
        continue;
      }
      const int substitute = cost[i - 1][j - 1] + (a[i - 1] == b[j - 1] ? 0 : 1);
      cost[i][j] = std::min({cost[i - 1][j] + 1, cost[i][j - 1] + 1, substitute});
      if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1]) {
        cost[i][j] = std::min(cost[i][j], cost[i - 2][j - 2] + 1);
      }
    }
  }
  return cost[a.size()][b.size()];
}

std::string Normal(std::string word) {
  absl::AsciiStrToLower(&word);
  std::replace(word.begin(), word.end(), '-', '_');
  return word;
}

// One key of a path, "sources[1]": its field, null where the schema has none, and the index of an entry.
struct PathStep {
  const FieldDescriptor* field = nullptr;
  int index = -1;
};

// What the keys of a path name, as far as they are in the schema; then a step without a field.
std::vector<PathStep> StepsAlong(std::string_view path) {
  std::vector<PathStep> steps;
  const Descriptor* type = v1::JobSpec::descriptor();
  for (const std::string& key :
       std::vector<std::string>(absl::StrSplit(absl::string_view(path.data(), path.size()), '.'))) {
    PathStep step;
    const size_t bracket = key.find('[');
    const bool has_index = bracket != std::string::npos;
    const bool is_index = has_index && key.ends_with(']') &&
                          absl::SimpleAtoi(key.substr(bracket + 1, key.size() - bracket - 2), &step.index) &&
                          step.index >= 0;
    const FieldDescriptor* const field =
        type == nullptr ? nullptr : type->FindFieldByName(key.substr(0, bracket));
    const bool fits = field != nullptr && (!has_index || (is_index && field->is_repeated()));
    step.field = fits ? field : nullptr;
    steps.push_back(step);
    if (!fits) {
      break;
    }
    type = field->message_type();
  }
  return steps;
}

// First path of the schema, in its order, that ends in `key`; empty where there is none. Keys of entries of
// lists are keys there alone.
std::string FindKey(const Descriptor& type, const std::string& parent, const std::string& key) {
  for (int i = 0; i < type.field_count(); ++i) {
    if (type.field(i)->name() == key) {
      return JoinPath(parent, key);
    }
  }
  for (int i = 0; i < type.field_count(); ++i) {
    const FieldDescriptor& field = *type.field(i);
    if (field.message_type() == nullptr || field.is_repeated()) {
      continue;
    }
    std::string found = FindKey(*field.message_type(), JoinPath(parent, field.name()), key);
    if (!found.empty()) {
      return found;
    }
  }
  return "";
}

}  // namespace

std::string EnumText(const EnumValueDescriptor& value) {
  return proto::LowerName(*value.type(), value.number());
}

std::vector<std::string> EnumTexts(const EnumDescriptor& type) {
  std::vector<std::string> texts;
  for (int i = 1; i < type.value_count(); ++i) {
    texts.push_back(EnumText(*type.value(i)));
  }
  return texts;
}

const EnumValueDescriptor* EnumValueOf(const EnumDescriptor& type, const std::string& text) {
  for (int i = 1; i < type.value_count(); ++i) {
    if (EnumText(*type.value(i)) == text) {
      return type.value(i);
    }
  }
  return nullptr;
}

const FieldDescriptor* FindField(std::string_view path) { return StepsAlong(path).back().field; }

FieldValue FindValue(const v1::JobSpec& spec, std::string_view path) {
  FieldValue out;
  for (const PathStep& step : StepsAlong(path)) {
    const Message* message = &spec;
    if (out.message != nullptr) {
      if (out.field->is_repeated() && out.index < 0) {
        return {};  // a key of a list is one of its entries
      }
      const google::protobuf::Reflection& reflection = *out.message->GetReflection();
      message = out.index < 0 ? &reflection.GetMessage(*out.message, out.field)
                              : &reflection.GetRepeatedMessage(*out.message, out.field, out.index);
    }
    if (step.field == nullptr) {
      return {};
    }
    const google::protobuf::Reflection& reflection = *message->GetReflection();
    if (step.field->is_repeated() ? reflection.FieldSize(*message, step.field) <= std::max(step.index, 0)
                                  : !reflection.HasField(*message, step.field)) {
      return {};
    }
    out = {message, step.field, step.index};
  }
  return out;
}

std::string ValueText(const FieldValue& value) {
  const auto& [message, field, index] = value;
  if (field->is_repeated()) {
    return index < 0 ? "[...]" : "{...}";
  }
  const google::protobuf::Reflection& reflection = *message->GetReflection();
  switch (field->cpp_type()) {
    case FieldDescriptor::CPPTYPE_DOUBLE:
      return NumberText(reflection.GetDouble(*message, field));
    case FieldDescriptor::CPPTYPE_STRING: {
      const std::string text = reflection.GetString(*message, field);
      return text.empty() ? "\"\"" : text;
    }
    case FieldDescriptor::CPPTYPE_ENUM: {
      const int number = reflection.GetEnumValue(*message, field);
      const EnumValueDescriptor* known = field->enum_type()->FindValueByNumber(number);
      return known == nullptr ? absl::StrCat("value ", number) : EnumText(*known);
    }
    case FieldDescriptor::CPPTYPE_MESSAGE:
      return "{...}";
    default: {  // integers and booleans
      std::string text;
      google::protobuf::TextFormat::PrintFieldValueToString(*message, field, -1, &text);
      return text;
    }
  }
}

std::vector<FieldDifference> DifferencesOf(const Message& there, const Message& here,
                                           const std::string& path) {
  std::vector<FieldDifference> out;
  const google::protobuf::Reflection& reflection = *here.GetReflection();
  const auto add_inner = [&](const Message& theirs, const Message& ours, const std::string& inner) {
    const std::vector<FieldDifference> differences = DifferencesOf(theirs, ours, inner);
    out.insert(out.end(), differences.begin(), differences.end());
  };
  for (int i = 0; i < here.GetDescriptor()->field_count(); ++i) {
    const FieldDescriptor* const field = here.GetDescriptor()->field(i);
    const std::string inner = JoinPath(path, field->name());
    if (field->is_repeated()) {
      const int theirs = reflection.FieldSize(there, field);
      const int ours = reflection.FieldSize(here, field);
      if (theirs != ours) {
        out.push_back({inner, absl::StrCat("a list of ", ours), absl::StrCat("a list of ", theirs)});
        continue;
      }
      for (int j = 0; j < ours; ++j) {
        add_inner(reflection.GetRepeatedMessage(there, field, j),
                  reflection.GetRepeatedMessage(here, field, j), EntryPath(inner, j));
      }
    } else if (field->message_type() != nullptr) {
      add_inner(reflection.GetMessage(there, field), reflection.GetMessage(here, field), inner);
    } else if (const std::string theirs = ValueText({&there, field}), ours = ValueText({&here, field});
               theirs != ours) {
      out.push_back({inner, ours, theirs});
    }
  }
  return out;
}

std::vector<int> SchemaOrder(std::string_view path) {
  std::vector<int> order;
  for (const auto& [field, index] : StepsAlong(path)) {
    if (field != nullptr) {
      order.push_back(field->number());
    }
    if (index >= 0) {
      order.push_back(index);
    }
  }
  return order;
}

std::string WithoutIndices(std::string_view path) {
  std::string out;
  bool inside = false;
  for (const char c : path) {
    inside |= c == '[';
    if (!inside) {
      out.push_back(c);
    }
    inside &= c != ']';
  }
  return out;
}

std::string EntryPath(const std::string& list, int index) { return absl::StrCat(list, "[", index, "]"); }

std::vector<std::string> PathsOf(const v1::JobSpec& spec, const std::string& path) {
  for (size_t dot = path.find('.'); dot != std::string::npos; dot = path.find('.', dot + 1)) {
    const std::string list = path.substr(0, dot);
    const FieldDescriptor* const field = FindField(list);
    if (field == nullptr || !field->is_repeated()) {
      continue;
    }
    std::vector<std::string> paths;  // no list is in another
    const FieldValue value = FindValue(spec, list);
    const int size =
        value.message == nullptr ? 0 : value.message->GetReflection()->FieldSize(*value.message, field);
    for (int i = 0; i < size; ++i) {
      paths.push_back(EntryPath(list, i) + path.substr(dot));
    }
    return paths;
  }
  return {path};
}

std::vector<std::string> UnknownFields(const google::protobuf::Message& message, const std::string& path) {
  const google::protobuf::Reflection& reflection = *message.GetReflection();
  std::vector<std::string> paths;
  if (const google::protobuf::UnknownFieldSet& unknown = reflection.GetUnknownFields(message);
      unknown.field_count() > 0) {
    paths.push_back(JoinPath(path, absl::StrCat("#", unknown.field(0).number())));
  }
  std::vector<const FieldDescriptor*> fields;
  reflection.ListFields(message, &fields);
  for (const FieldDescriptor* field : fields) {
    if (field->message_type() == nullptr) {
      continue;
    }
    const std::string at = JoinPath(path, field->name());
    const int size = field->is_repeated() ? reflection.FieldSize(message, field) : 1;
    for (int i = 0; i < size; ++i) {
      for (std::string& inner :
           field->is_repeated()
               ? UnknownFields(reflection.GetRepeatedMessage(message, field, i), EntryPath(at, i))
               : UnknownFields(reflection.GetMessage(message, field), at)) {
        paths.push_back(std::move(inner));
      }
    }
  }
  return paths;
}

std::string JoinPath(const std::string& parent, const std::string& key) {
  return parent.empty() ? key : absl::StrCat(parent, ".", key);
}

std::vector<std::string> Keys(const Descriptor& type) {
  std::vector<std::string> keys;
  for (int i = 0; i < type.field_count(); ++i) {
    keys.push_back(type.field(i)->name());
  }
  return keys;
}

std::string Closest(const std::string& word, const std::vector<std::string>& candidates) {
  if (word.size() > 64) {
    return "";
  }
  const std::string normal = Normal(word);
  for (const auto& synonym : kValueSynonyms) {
    if (normal == synonym.text &&
        std::find(candidates.begin(), candidates.end(), synonym.value) != candidates.end()) {
      return synonym.value;
    }
  }
  std::string best;
  int best_distance = std::max<int>(1, static_cast<int>(normal.size()) / 3) + 1;
  for (const std::string& candidate : candidates) {
    const int distance = EditDistance(normal, Normal(candidate));
    if (distance < best_distance) {
      best_distance = distance;
      best = candidate;
    }
  }
  return best;
}

std::string SuggestPath(const std::string& parent, const Descriptor& type, const std::string& key) {
  const std::string leaf = Normal(key.substr(key.rfind('.') + 1));  // "training.steps: 5" is a habit, too
  if (type.FindFieldByName(leaf) != nullptr) {
    return JoinPath(parent, leaf);
  }
  if (leaf.size() > 64) {
    return "";
  }
  for (const auto& synonym : kSynonyms) {
    if (leaf == synonym.key) {
      return synonym.path;
    }
  }
  if (const std::string elsewhere = FindKey(*v1::JobSpec::descriptor(), "", leaf); !elsewhere.empty()) {
    return elsewhere;
  }
  const std::string sibling = Closest(leaf, Keys(type));
  return sibling.empty() ? "" : JoinPath(parent, sibling);
}

std::string NumberText(double value) {
  char buffer[64];
  const auto [end, error] = std::to_chars(buffer, buffer + sizeof(buffer), value);
  std::string text(buffer, error == std::errc() ? end : buffer);
  // "1e-05" and "1e+09" as people write them.
  if (const size_t e = text.find('e'); e != std::string::npos) {
    size_t digit = e + 1;
    if (text[digit] == '+') {
      text.erase(digit, 1);
    } else if (text[digit] == '-') {
      ++digit;
    }
    while (text[digit] == '0' && digit + 1 < text.size()) {
      text.erase(digit, 1);
    }
  }
  return text;
}

}  // namespace tandem::jobspec
