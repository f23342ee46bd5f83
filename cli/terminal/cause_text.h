#pragma once

#include <string>

#include "tandem/v1/state.pb.h"

namespace tandem::cli {

// Why an attempt ended, in one paragraph without newlines: "Rank 1 on worker b was killed by signal 9
// (SIGKILL) at step 134 in "F layers.3.mlp 1": out of memory." Says only what the cause holds.
std::string CauseText(const v1::Cause& cause);

}  // namespace tandem::cli
