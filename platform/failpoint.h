// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string_view>

#include "absl/status/status.h"

namespace tandem::platform {

// TANDEM_FAILPOINT("controller.after_commit") kills the process there (SIGKILL), as a power cut would, if
// the flag --failpoint names it. Compiled to nothing, name and all, except in targets that link
// tandem_failpoints: the variants of the daemons that tests kill (tests/failpoints). What users run has none.
//
// `spec` is NAME=kill or NAME=kill@N (the N-th time, from 1), several separated by commas. Call once, before
// threads start.
absl::Status SetFailpoints(std::string_view spec);

// Use the macro.
void HitFailpoint(const char* name);

}  // namespace tandem::platform

#ifdef TANDEM_FAILPOINTS
#define TANDEM_FAILPOINT(name) ::tandem::platform::HitFailpoint(name)
#else
#define TANDEM_FAILPOINT(name) static_cast<void>(0)
#endif
