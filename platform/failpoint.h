// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string_view>

#include "absl/status/status.h"

namespace tandem::platform {

// TANDEM_FAILPOINT("controller.after_commit") kills the process at that line with SIGKILL, as a power cut
// would, if the flag --failpoint has that name. The macro compiles to nothing, except in targets that link
// tandem_failpoints: the variants of the daemons that tests kill (tests/failpoints). Users do not run these
// variants.
//
// Sets the failpoints of the flag. `spec` is a comma-separated list of NAME=kill (the first time) or
// NAME=kill@N (the N-th time, from 1). Call once, before threads start.
absl::Status SetFailpoints(std::string_view spec);

// Called only by the macro.
void HitFailpoint(const char* name);

}  // namespace tandem::platform

#ifdef TANDEM_FAILPOINTS
#define TANDEM_FAILPOINT(name) ::tandem::platform::HitFailpoint(name)
#else
#define TANDEM_FAILPOINT(name) static_cast<void>(0)
#endif
