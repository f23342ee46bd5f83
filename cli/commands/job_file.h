// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "cli/commands/commands.h"
#include "tandem/v1/job.pb.h"

namespace tandem::cli {

struct JobFile {
  v1::JobSpec spec;  // as submitted: paths absolute, Hugging Face configuration inlined
  v1::JobSpec resolved;
};

// Reads a job file and checks all that can be checked without the controller. If there are violations, prints
// a line for each on standard error and fails.
//
// files_are_here: whether the workers see the files of this machine. If true, the job's files and folders are
// checked (CheckFiles in jobspec.h). If false, they are checked if the path of a training text exists here;
// otherwise a note says that the workers will check the data. If nullopt, they are not checked.
absl::StatusOr<JobFile> LoadJobFile(Context& context, const JobSource& source,
                                    std::optional<bool> files_are_here);

// Sets one field of a job: "training.optimizer.learning_rate=1e-4", "data.train=/data/a.txt"; or of an
// existing entry of a list: "data.sources[1].weight=2". Parses the value as a job file is parsed. Returns
// violations, whose paths begin with that of the setting, if there is no such field or the value does not
// fit.
std::vector<v1::Violation> ApplySetting(const std::string& setting, v1::JobSpec& spec);

}  // namespace tandem::cli
