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

// Everything that is wrong with the files of the job's texts. Reads names, sizes, headers and indices; also
// samples of files of tokens, to find copies. The trainer refuses the same when it starts.
std::vector<v1::Violation> CheckTextFiles(const v1::JobSpec& resolved, const BeforePath& before);

// CheckTextFiles for a job whose texts are files of tokens. `train` must not be empty.
std::vector<v1::Violation> CheckTokenFiles(const v1::JobSpec& resolved, const std::vector<DataText>& train,
                                           const std::vector<DataText>& held_out);

// Whether the job validates on held-out ends of its training texts.
bool ValidatesOnEnds(const v1::JobSpec& resolved);

// The length of the shortest text that a job can read, sequence_length + 1; and this length in a violation's
// words. `unit` is "bytes" or "tokens".
int64_t WindowOf(const v1::JobSpec& resolved);
std::string WindowText(const v1::JobSpec& resolved, const char* unit);

// The files of texts, in which CheckApart and CheckShared look for a file that two texts share. The trainer
// refuses the same when it starts.

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
// although the rest of their files is not the same.
void CheckShared(const std::vector<FilesOfText>& trained, std::vector<v1::Violation>& violations);

}  // namespace tandem::jobspec
