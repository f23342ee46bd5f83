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
