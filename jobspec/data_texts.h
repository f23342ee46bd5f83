// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "data/text_format.h"
#include "tandem/v1/job.pb.h"

namespace tandem::jobspec {

// The texts of a job, whichever fields have their paths.

struct DataText {
  std::string field;  // the field that has the path: "data.validation", "data.validation_sets[1].path"
  std::string path;
  std::string name;  // its name in reports; empty if the job has only this text
  v1::DataFormat format = v1::DATA_FORMAT_AUTO;
  v1::TokenType token_type = v1::TOKEN_TYPE_UNSPECIFIED;  // for the format flat
  double weight = 0;  // if it is one of several texts; 0: the job gives none
};

// Convert to the types of data/.
data::TextFormat FormatOf(const DataText& text);
std::optional<data::TokenType> TokenTypeOf(const DataText& text);

// The texts that have a path.
std::vector<DataText> TrainingTexts(const v1::Data& resolved);
std::vector<DataText> ValidationTexts(const v1::Data& resolved);

// Whether the job has text to validate on: texts of its own, or a held-out part of the training texts.
bool HoldsOut(const v1::Data& data);

// The last part of a path, without trailing slashes. It is the name of a text if the job gives none.
std::string NameOfPath(const std::string& path);

}  // namespace tandem::jobspec
