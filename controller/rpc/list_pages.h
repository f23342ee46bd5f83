// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "absl/status/status.h"
#include "controller/core/state.h"
#include "controller/metrics/progress_board.h"
#include "controller/rpc/sessions.h"
#include "controller/store/history.h"
#include "controller/store/store.h"
#include "tandem/v1/jobs.pb.h"

namespace tandem::controller {

// Fill in one page of the List methods of Jobs. A page also ends before its message becomes too large for
// clients. If there are more entries, the response's token begins the next page. InvalidArgument if a request
// is out of bounds.

absl::Status ListJobs(const v1::ListJobsRequest& request, Store& store, History& history,
                      const ProgressBoard& progress, v1::ListJobsResponse& response);

absl::Status ListWorkers(const v1::ListWorkersRequest& request, const State& state, const Sessions& sessions,
                         v1::ListWorkersResponse& response);

absl::Status ListEvents(const v1::ListEventsRequest& request, Store& store, v1::ListEventsResponse& response);

// All norms on a page are of one parameter table, which is in the response.
absl::Status ListReports(const v1::ListReportsRequest& request, Store& store, History& history,
                         v1::ListReportsResponse& response);

}  // namespace tandem::controller
