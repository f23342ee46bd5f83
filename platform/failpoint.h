#pragma once

#include <string_view>

#include "absl/status/status.h"
#include "platform/failpoint_config.h"

namespace tandem::platform {

// TANDEM_FAILPOINT("controller.after_commit") does nothing, or, where the flag --failpoint names it,
// kills the process there (SIGKILL), as a power cut would. Compiled to nothing unless the build has
// TANDEM_FAILPOINTS.
//
// `spec` is NAME=kill or NAME=kill@N (the N-th time, from 1), several separated by commas. Call once, before
// threads start. FailedPrecondition in builds without failpoints.
absl::Status SetFailpoints(std::string_view spec);

// Use the macro.
void HitFailpoint(const char* name);

}  // namespace tandem::platform

#ifdef TANDEM_FAILPOINTS
#define TANDEM_FAILPOINT(name) ::tandem::platform::HitFailpoint(name)
#else
#define TANDEM_FAILPOINT(name) static_cast<void>(0)
#endif
