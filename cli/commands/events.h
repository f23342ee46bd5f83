#pragma once

#include <string>
#include <vector>

#include "absl/time/time.h"
#include "tandem/v1/state.pb.h"

namespace tandem::cli {

// The events of a job, a row each, oldest first. width as of Table::Render.
std::string RenderEvents(const std::vector<v1::Event>& events, absl::TimeZone zone, int width, bool unicode);

}  // namespace tandem::cli
