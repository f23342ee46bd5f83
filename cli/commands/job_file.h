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

// Reads a job file and checks all that can be checked before anything is dialled. Prints every violation on
// standard error, a line each, and fails then.
//
// files_are_here: whether the workers see this machine's files. true: data and checkpoint folder are checked;
// false: the data is checked only if it exists here, otherwise a note says that it was not; nullopt: neither
// is checked.
absl::StatusOr<JobFile> LoadJobFile(Context& context, const JobSource& source,
                                    std::optional<bool> files_are_here);

// Gives one field of a job another value: "training.optimizer.learning_rate=1e-4", "data.train=/data/a.txt",
// "data.sources[1].weight=2", of an entry that the list has. The value is read as in a job file and replaces
// the former one. Violations if there is no such field or the value does not fit; their path begins with the
// setting's.
std::vector<v1::Violation> ApplySetting(const std::string& setting, v1::JobSpec& spec);

}  // namespace tandem::cli
