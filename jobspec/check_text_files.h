// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "data/held_out.h"
#include "jobspec/check_files.h"
#include "jobspec/data_texts.h"
#include "tandem/v1/job.pb.h"

namespace tandem::jobspec {

// Everything that is wrong with the files of the job's texts. Reads names, sizes, headers, indices and, to
// find copies of files of tokens, samples. The trainer refuses the same when it starts.
std::vector<v1::Violation> CheckTextFiles(const v1::JobSpec& resolved, const BeforePath& before);

// CheckTextFiles for a job whose texts are files of tokens. `train` must not be empty.
std::vector<v1::Violation> CheckTokenFiles(const v1::JobSpec& resolved, const std::vector<DataText>& train,
                                           const std::vector<DataText>& held_out);

// Whether the end of each training text is held out and used for validation.
bool ValidatesOnEnds(const v1::JobSpec& resolved);

// The length of the shortest text that a job can read, sequence_length + 1, and that length as a violation
// states it. `unit` is "bytes" or "tokens".
int64_t WindowOf(const v1::JobSpec& resolved);
std::string WindowText(const v1::JobSpec& resolved, const char* unit);

// Violations for files that two texts of a job share. The trainer refuses the same when it starts.

struct FoundFile {
  data::FileOfText file;
  std::string path;
  int64_t bytes = 0;
};

struct FilesOfText {
  std::string field;  // the field that has the text's path
  std::string path;   // the value of that field
  std::vector<FoundFile> files;
};

// Adds at most one violation, for a validation file that is also a training file.
void CheckApart(const std::vector<FilesOfText>& trained, const FilesOfText& validation,
                std::vector<v1::Violation>& violations);

// For jobs that hold out the end of each text: adds at most one violation, for a file that two texts share
// although they do not have the same files.
void CheckShared(const std::vector<FilesOfText>& trained, std::vector<v1::Violation>& violations);

}  // namespace tandem::jobspec
