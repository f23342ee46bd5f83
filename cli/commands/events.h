// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "absl/time/time.h"
#include "tandem/v1/state.pb.h"

namespace tandem::cli {

// Events, a row each, oldest first; with_job: of several jobs. width as of Table::Render.
std::string RenderEvents(const std::vector<v1::Event>& events, bool with_job, absl::TimeZone zone, int width,
                         bool unicode);

}  // namespace tandem::cli
