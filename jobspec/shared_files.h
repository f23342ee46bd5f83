// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "data/held_out.h"
#include "tandem/v1/job.pb.h"

namespace tandem::jobspec {

// Violations for files that two texts of a job share. The trainer refuses the same when it starts.

struct FoundFile {
  data::FileOfText file;
  std::string path;
  int64_t bytes = 0;
};

struct FilesOfText {
  std::string field;  // the field that names the text
  std::string path;   // as the field has it
  std::vector<FoundFile> files;
};

// Adds at most one violation, for a validation file that is also trained on.
void CheckApart(const std::vector<FilesOfText>& trained, const FilesOfText& validation,
                std::vector<v1::Violation>& violations);

// For jobs that hold out the ends of all texts: adds at most one violation, for a file that two different
// texts share.
void CheckShared(const std::vector<FilesOfText>& trained, std::vector<v1::Violation>& violations);

}  // namespace tandem::jobspec
