// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <map>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "tandem/v1/report.pb.h"
#include "tandem/v1/state.pb.h"

namespace tandem::cli {

// A cluster at one moment.
struct TopState {
  std::vector<v1::Job> jobs;  // those that are live, newest first
  std::vector<v1::Worker> workers;
  std::map<std::string, v1::StepReport> reports;  // the newest of a job, by its id
};

struct TopShape {
  int columns = 0;  // 0: no limit
  int rows = 0;     // 0: no limit
  bool unicode = true;
};

// Workers and slots, then a row for each job that runs, the fastest first, then those that wait, in the order
// in which they will start; at most rows - 1 lines, none wider than the terminal. Pure.
std::string RenderTop(const TopState& state, const TopShape& shape, absl::Time now);

// The jobs of which RenderTop shows a report, in its order.
std::vector<std::string> JobsWithReports(const TopState& state);

}  // namespace tandem::cli
