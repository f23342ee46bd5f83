#pragma once

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "schedules_v1/program.h"
#include "schedules_v1/refusal.h"

namespace tandem::schedules_v1 {

// The order of additions is part of what the checker proves, since another order gives other bits: within a
// microbatch the contributions to one gradient come in the reverse order of the outline's nodes, one of each
// node (the halves of a split backward are two).
//
// Instruction i contributes to the gradient that is called `name`, and `before` contributed to it last;
// before -1: nothing has.
absl::Status CheckFoldOrder(const Program& program, const Refusal& refuse, int i, int before,
                            absl::string_view name);

}  // namespace tandem::schedules_v1
