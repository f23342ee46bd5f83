// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <map>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "cli/terminal/console.h"
#include "tandem/v1/report.pb.h"
#include "tandem/v1/state.pb.h"

namespace tandem::cli {

// A cluster at one moment.
struct TopState {
  std::vector<v1::Job> jobs;  // that have not ended, newest first
  std::vector<v1::Worker> workers;
  std::map<std::string, v1::StepReport> reports;  // the newest of each job, by its id
};

// Draws a line about workers, slots and jobs, then a row for each job that has slots, then a row for each job
// that waits for slots. Both groups of rows are in the order of submission. At most size.rows - 1 lines, none
// wider than size.columns (0: no limit for either). Pure.
std::string RenderTop(const TopState& state, const TerminalSize& size, bool unicode, absl::Time now);

// Returns the ids of the jobs whose reports RenderTop shows, in the order of its rows.
std::vector<std::string> JobsWithReports(const TopState& state);

}  // namespace tandem::cli
