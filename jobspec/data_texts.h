// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "data/text_format.h"
#include "tandem/v1/job.pb.h"

namespace tandem::jobspec {

// The texts of a job, in whichever fields it names them.

struct DataText {
  std::string field;  // that has the path: "data.validation", "data.validation_sets[1].path"
  std::string path;
  std::string name;  // in reports; empty: the text is the only one, and has none
  v1::DataFormat format = v1::DATA_FORMAT_AUTO;
  v1::TokenType token_type = v1::TOKEN_TYPE_UNSPECIFIED;  // of flat
  double weight = 0;                                      // of one of several; 0: none is given
};

// The same, for data/.
data::TextFormat FormatOf(const DataText& text);
std::optional<data::TokenType> TokenTypeOf(const DataText& text);

// Those that have a path.
std::vector<DataText> TrainingTexts(const v1::Data& resolved);
std::vector<DataText> ValidationTexts(const v1::Data& resolved);

// Whether there is text to validate on.
bool HoldsOut(const v1::Data& data);

// The last part of a path, without slashes at its end: the name of a text that has no other.
std::string NameOfPath(const std::string& path);

}  // namespace tandem::jobspec
