// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "jobspec/data_texts.h"
#include "tandem/v1/job.pb.h"

namespace tandem::jobspec {

// CheckTextFiles for a job whose texts are files of tokens. `train` must not be empty.
std::vector<v1::Violation> CheckTokenFiles(const v1::JobSpec& resolved, const std::vector<DataText>& train,
                                           const std::vector<DataText>& held_out);

// Whether the end of each training text is held out and used for validation.
bool ValidatesOnEnds(const v1::JobSpec& resolved);

// The length of the shortest text that a job can read, sequence_length + 1, and the words of a violation
// about it. `unit` is "bytes" or "tokens".
int64_t WindowOf(const v1::JobSpec& resolved);
std::string WindowText(const v1::JobSpec& resolved, const char* unit);

}  // namespace tandem::jobspec
