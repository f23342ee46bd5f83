// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "data/held_out.h"
#include "tandem/v1/job.pb.h"

namespace tandem::jobspec {

// Which files are of two texts of a job, in the words of a violation. The trainer refuses the same when it
// starts.

struct FoundFile {
  data::FileOfText file;
  std::string path;
  int64_t bytes = 0;
};

struct FilesOfText {
  std::string field;  // that names the text
  std::string path;   // as it names it
  std::vector<FoundFile> files;
};

// Adds at most one violation, for a file of the text to validate on that is trained on too.
void CheckApart(const std::vector<FilesOfText>& trained, const FilesOfText& validation,
                std::vector<v1::Violation>& violations);

// Adds at most one violation, for a file of two texts that differ, if the ends of all are held out.
void CheckShared(const std::vector<FilesOfText>& trained, std::vector<v1::Violation>& violations);

}  // namespace tandem::jobspec
