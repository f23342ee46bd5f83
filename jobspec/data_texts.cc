// SPDX-License-Identifier: Apache-2.0
#include "jobspec/data_texts.h"

#include "absl/strings/str_cat.h"

namespace tandem::jobspec {
namespace {

double WeightOf(const v1::DataSource& source) { return source.weight(); }
double WeightOf(const v1::ValidationSet&) { return 0; }

template <typename Texts>
void AddTexts(const char* list, const Texts& texts, std::vector<DataText>& out) {
  for (int i = 0; i < texts.size(); ++i) {
    if (texts[i].has_path()) {
      out.push_back({.field = absl::StrCat(list, "[", i, "].path"),
                     .path = texts[i].path(),
                     .name = texts[i].name(),
                     .format = texts[i].has_format() ? texts[i].format() : v1::DATA_FORMAT_AUTO,
                     .token_type = texts[i].token_type(),
                     .weight = WeightOf(texts[i])});
    }
  }
}

}  // namespace

std::vector<DataText> TrainingTexts(const v1::Data& resolved) {
  std::vector<DataText> out;
  if (resolved.has_train()) {
    out.push_back({.field = "data.train", .path = resolved.train()});
  }
  AddTexts("data.sources", resolved.sources(), out);
  return out;
}

std::vector<DataText> ValidationTexts(const v1::Data& resolved) {
  std::vector<DataText> out;
  if (resolved.has_validation()) {
    out.push_back({.field = "data.validation", .path = resolved.validation()});
  }
  AddTexts("data.validation_sets", resolved.validation_sets(), out);
  return out;
}

data::TextFormat FormatOf(const DataText& text) {
  switch (text.format) {
    case v1::DATA_FORMAT_PREPARED:
      return data::TextFormat::kPrepared;
    case v1::DATA_FORMAT_MEGATRON:
      return data::TextFormat::kMegatron;
    case v1::DATA_FORMAT_NPY:
      return data::TextFormat::kNpy;
    case v1::DATA_FORMAT_LLMC:
      return data::TextFormat::kLlmc;
    case v1::DATA_FORMAT_BYTES:
      return data::TextFormat::kBytes;
    case v1::DATA_FORMAT_FLAT:
      return data::TextFormat::kFlat;
    default:
      return data::TextFormat::kAuto;
  }
}

std::optional<data::TokenType> TokenTypeOf(const DataText& text) {
  return text.token_type == v1::TOKEN_TYPE_U16   ? std::optional(data::TokenType::kU16)
         : text.token_type == v1::TOKEN_TYPE_U32 ? std::optional(data::TokenType::kU32)
                                                 : std::nullopt;
}

bool HoldsOut(const v1::Data& data) {
  return data.has_validation() || !data.validation_sets().empty() || data.validation_fraction() > 0;
}

std::string NameOfPath(const std::string& path) {
  const size_t end = path.find_last_not_of('/');
  if (end == std::string::npos) {
    return "";
  }
  const size_t slash = path.rfind('/', end);
  const size_t begin = slash == std::string::npos ? 0 : slash + 1;
  return path.substr(begin, end + 1 - begin);
}

}  // namespace tandem::jobspec
