// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "data/text_format.h"
#include "tandem/v1/job.pb.h"

namespace tandem::jobspec {

// The training and validation texts of a job in one form, whether the spec has a single path (data.train,
// data.validation) or a list (data.sources, data.validation_sets).

struct DataText {
  std::string field;  // the field that has the path: "data.validation", "data.validation_sets[1].path"
  std::string path;
  // Its name in reports; empty for data.train and data.validation, which are the only text of their kind.
  std::string name;
  v1::DataFormat format = v1::DATA_FORMAT_AUTO;
  v1::TokenType token_type = v1::TOKEN_TYPE_UNSPECIFIED;  // for the format flat
  double weight = 0;  // of an entry of data.sources; 0: the job gives none
};

// Convert to the types of data/.
data::TextFormat FormatOf(const DataText& text);
std::optional<data::TokenType> TokenTypeOf(const DataText& text);

// The texts that have a path, in the order of the spec.
std::vector<DataText> TrainingTexts(const v1::Data& resolved);
std::vector<DataText> ValidationTexts(const v1::Data& resolved);

// Whether the job can validate: it has validation texts, or holds out a part of its training texts
// (data.validation_fraction).
bool HoldsOut(const v1::Data& data);

// The last part of a path, without trailing slashes. It is the name of a text if the job gives none.
std::string NameOfPath(const std::string& path);

}  // namespace tandem::jobspec
