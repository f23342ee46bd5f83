#pragma once

#include <vector>

#include "absl/status/statusor.h"
#include "tandem/v1/job.pb.h"
#include "tandem/v1/workers.pb.h"

namespace tandem::controller {

// The process groups of a resolved spec, in creation order. Not stored: recomputed from the grid.
// InvalidArgument where its sizes do not fit together; a submitted spec is refused for that (jobspec).
absl::StatusOr<std::vector<v1::GroupList>> GroupsOf(const v1::JobSpec& resolved);

}  // namespace tandem::controller
