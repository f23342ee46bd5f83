#pragma once

#include <string>

#include "tandem/v1/state.pb.h"

namespace tandem::cli {

// "rank 1 on worker b is stopped, by a signal or a debugger, in step 37, forward of microbatch 2"
std::string BehindText(const v1::Progress& progress);

// What follows "progress": "0.2 s ago", or "none for 23 s: rank 1 on worker b ..." where the job stands
// still.
std::string ProgressText(const v1::Progress& progress);

}  // namespace tandem::cli
