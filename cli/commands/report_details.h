// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "cli/commands/commands.h"

namespace tandem::cli {

// The details of one step's report, which are kept of the newest steps alone.
struct ReportDetails {
  int64_t step = 0;
  v1::Norms norms;
  v1::ParameterTable table;
};

// Which part of a job's reports a command shows.
struct DetailsRequest {
  std::string job;
  int64_t step = 0;                                 // 0: the newest that has them
  std::string what;                                 // the command, for messages: "norms headers"
  std::function<bool(const v1::Norms&)> has_them;   // whether a report has what is asked for
  std::function<std::string(const v1::Job&)> none;  // why the job never has them; empty: it has
};

// Returns the newest details, or those of the step. Failure if there are none.
absl::StatusOr<ReportDetails> FindDetails(Client& client, const DetailsRequest& request);

}  // namespace tandem::cli
