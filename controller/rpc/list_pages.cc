// SPDX-License-Identifier: Apache-2.0
#include "controller/rpc/list_pages.h"

#include <algorithm>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "platform/status_macros.h"
#include "proto/time.h"

namespace tandem::controller {
namespace {

constexpr size_t kPageBytes = size_t{3} << 20;  // clients take messages of 4 MiB
constexpr int kMostPoints = 2000;

absl::StatusOr<int> PageSize(int asked) {
  if (asked < 0) {
    return absl::InvalidArgumentError("page_size: must not be negative; 0 means 100");
  }
  return asked == 0 ? 100 : std::min(asked, 1000);
}

// The page that a request asks for. position: the number in its token; on the first page, one less than the
// least.
struct Page {
  int size = 0;
  int64_t position = 0;
};

// least: the least number of what is listed.
template <typename Request>
absl::StatusOr<Page> PageOf(const Request& request, int64_t least) {
  TANDEM_ASSIGN_OR_RETURN(const int size, PageSize(request.page_size()));
  Page page{.size = size, .position = least - 1};
  const std::string& token = request.page_token();
  if (!token.empty() && (!absl::SimpleAtoi(token, &page.position) || page.position < least)) {
    return absl::InvalidArgumentError("page_token: must come from an earlier answer of this service");
  }
  return page;
}

// Returns the states to list; an empty set means all.
absl::StatusOr<std::set<v1::JobState>> StatesOf(const v1::ListJobsRequest& request) {
  std::set<v1::JobState> out;
  for (const int state : request.states()) {
    if (!v1::JobState_IsValid(state) || state == v1::JOB_STATE_UNSPECIFIED) {
      std::vector<std::string> known;
      for (int i = v1::JOB_STATE_UNSPECIFIED + 1; i <= v1::JobState_MAX; ++i) {
        known.push_back(v1::JobState_Name(static_cast<v1::JobState>(i)));
      }
      return absl::InvalidArgumentError(
          absl::StrCat("states: the number ", state, " is not a state that this version knows; allowed: ",
                       absl::StrJoin(known, ", "), "; use a client of the same version"));
    }
    out.insert(static_cast<v1::JobState>(state));
  }
  return out;
}

// Does what ListJobsRequest.brief asks for.
void Shorten(v1::Job& job) {
  job.clear_submitted();
  v1::JobSpec brief;
  brief.mutable_training()->set_steps(job.resolved().training().steps());
  brief.mutable_parallelism()->set_ranks(job.resolved().parallelism().ranks());
  brief.mutable_checkpoint()->set_directory(job.resolved().checkpoint().directory());
  *job.mutable_resolved() = std::move(brief);
  for (v1::Attempt& attempt : *job.mutable_attempts()) {
    if (attempt.has_ended()) {
      attempt.clear_slots();
    }
  }
}

// Removes the norms that were not requested.
void Select(const v1::ListReportsRequest& request, v1::Norms& norms) {
  const auto keep = [&](v1::NormKind kind, google::protobuf::RepeatedField<double>& list) {
    const int index = request.parameter() - 1;
    if (request.kind() != v1::NORM_KIND_UNSPECIFIED && request.kind() != kind) {
      list.Clear();
    } else if (index >= 0) {
      const std::vector<double> one(index < list.size() ? 1 : 0, index < list.size() ? list.Get(index) : 0);
      list.Assign(one.begin(), one.end());
    }
  };
  keep(v1::NORM_KIND_WEIGHT, *norms.mutable_weight());
  keep(v1::NORM_KIND_GRADIENT, *norms.mutable_gradient());
  keep(v1::NORM_KIND_UPDATE, *norms.mutable_update());
  keep(v1::NORM_KIND_UNSPECIFIED, *norms.mutable_rms());
  keep(v1::NORM_KIND_UNSPECIFIED, *norms.mutable_max_abs());
  keep(v1::NORM_KIND_UNSPECIFIED, *norms.mutable_gradient_max_abs());
  keep(v1::NORM_KIND_UNSPECIFIED, *norms.mutable_update_max_abs());
  if (request.kind() != v1::NORM_KIND_UNSPECIFIED || request.parameter() > 0) {
    norms.clear_experts();
  }
}

// Removes all other parameters from the table if one was requested.
void Select(const v1::ListReportsRequest& request, v1::ParameterTable& table) {
  if (request.parameter() > 0 && request.parameter() <= table.parameters_size()) {
    v1::Parameter only = std::move(*table.mutable_parameters(request.parameter() - 1));
    table.clear_parameters();
    *table.add_parameters() = std::move(only);
  }
}

absl::Status CheckBounds(const v1::ListReportsRequest& request) {
  if (request.first_step() < 0 || request.last_step() < 0) {
    return absl::InvalidArgumentError("first_step, last_step: must not be negative");
  }
  if (request.points() < 0 || request.points() == 1 || request.points() > kMostPoints ||
      request.parameter() < 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("points: 0 or 2 to ", kMostPoints, "; parameter: 0 or a number in the table, from 1"));
  }
  if (request.points() > 0 && !request.page_token().empty()) {
    return absl::InvalidArgumentError("points: they come on one page; ask for fewer, without page_token");
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status ListJobs(const v1::ListJobsRequest& request, Store& store, History& history,
                      const ProgressBoard& progress, v1::ListJobsResponse& response) {
  TANDEM_ASSIGN_OR_RETURN(const Page page, PageOf(request, /*least=*/1));
  TANDEM_ASSIGN_OR_RETURN(const std::set<v1::JobState> states, StatesOf(request));
  TANDEM_ASSIGN_OR_RETURN(auto jobs, store.List(page.position, page.size + 1, states));
  size_t bytes = 0;
  for (size_t i = 0; i < jobs.size(); ++i) {
    v1::Job& job = jobs[i].second;
    if (request.brief()) {
      Shorten(job);
    }
    bytes += job.ByteSizeLong();
    if (response.jobs_size() == page.size || (i > 0 && bytes > kPageBytes)) {
      response.set_next_page_token(absl::StrCat(jobs[i - 1].first));
      break;
    }
    TANDEM_RETURN_IF_ERROR(FillLastStep(history, job));
    progress.Fill(job);
    *response.add_jobs() = std::move(job);
  }
  return absl::OkStatus();
}

absl::Status ListWorkers(const v1::ListWorkersRequest& request, const State& state, const Sessions& sessions,
                         v1::ListWorkersResponse& response) {
  TANDEM_ASSIGN_OR_RETURN(const int size, PageSize(request.page_size()));
  for (auto it = state.workers.upper_bound(request.page_token()); it != state.workers.end(); ++it) {
    if (response.workers_size() == size) {
      response.set_next_page_token(response.workers(size - 1).id());
      break;
    }
    v1::Worker& worker = *response.add_workers();
    worker = Describe(state, it->first);
    *worker.mutable_last_seen() = proto::ToProto(
        it->second.connected ? std::max(it->second.since, sessions.LastSeen(it->first)) : it->second.since);
  }
  return absl::OkStatus();
}

absl::Status ListEvents(const v1::ListEventsRequest& request, Store& store,
                        v1::ListEventsResponse& response) {
  TANDEM_ASSIGN_OR_RETURN(const Page page, PageOf(request, /*least=*/1));
  if (request.after_seq() < 0) {
    return absl::InvalidArgumentError("after_seq: must not be negative");
  }
  std::string job_id;
  if (!request.job().empty()) {
    TANDEM_ASSIGN_OR_RETURN(const v1::Job job, store.Lookup(request.job()));
    job_id = job.id();
  }
  TANDEM_ASSIGN_OR_RETURN(std::vector<v1::Event> events,
                          store.Events(job_id, std::max(page.position, request.after_seq()), page.size + 1));
  size_t bytes = 0;
  for (v1::Event& event : events) {
    bytes += event.ByteSizeLong();
    const int count = response.events_size();
    if (count == page.size || (count > 0 && bytes > kPageBytes)) {
      response.set_next_page_token(absl::StrCat(response.events(count - 1).seq()));
      break;
    }
    *response.add_events() = std::move(event);
  }
  return absl::OkStatus();
}

absl::Status ListReports(const v1::ListReportsRequest& request, Store& store, History& history,
                         v1::ListReportsResponse& response) {
  TANDEM_ASSIGN_OR_RETURN(const Page page, PageOf(request, /*least=*/0));
  TANDEM_RETURN_IF_ERROR(CheckBounds(request));
  TANDEM_ASSIGN_OR_RETURN(const v1::Job job, store.Lookup(request.job()));
  const bool spread = request.points() > 0;
  const History::Trim trim = [&request](v1::Norms& norms) { Select(request, norms); };
  // Norms are large, so only as many reports as fit in a message are read at a time.
  const int limit = request.norms() ? std::min(page.size, 32) : page.size;
  TANDEM_ASSIGN_OR_RETURN(std::vector<v1::StepReport> reports,
                          spread ? history.Spread(job.id(), request.first_step(), request.last_step(),
                                                  request.points(), request.norms() ? trim : nullptr)
                                 : history.Range(job.id(), std::max(request.first_step(), page.position + 1),
                                                 request.last_step(), limit + 1, request.norms()));
  size_t bytes = 0;
  std::string digest;
  for (v1::StepReport& report : reports) {
    if (report.has_norms()) {
      const std::string& its = report.norms().table_digest();
      if (!digest.empty() && its != digest) {  // all norms of one page belong to one table
        if (spread) {
          continue;
        }
        response.set_next_page_token(absl::StrCat(response.reports(response.reports_size() - 1).step()));
        break;
      }
      if (digest.empty()) {
        digest = its;
        TANDEM_ASSIGN_OR_RETURN(std::optional<v1::ParameterTable> table, history.Table(digest));
        if (table.has_value()) {
          *response.mutable_table() = *std::move(table);
          Select(request, *response.mutable_table());
          bytes += response.table().ByteSizeLong();
        }
      }
      if (!spread) {
        trim(*report.mutable_norms());
      }
    }
    bytes += report.ByteSizeLong();
    const int count = response.reports_size();
    if (spread && count > 0 && bytes > kPageBytes) {
      return absl::ResourceExhaustedError(
          absl::StrCat("points: ", request.points(), " of them do not fit in one answer (", count,
                       " do); ask for fewer, or for one kind or one parameter"));
    }
    if (!spread && (count == limit || (count > 0 && bytes > kPageBytes))) {
      response.set_next_page_token(absl::StrCat(response.reports(count - 1).step()));
      break;
    }
    *response.add_reports() = std::move(report);
  }
  return absl::OkStatus();
}

}  // namespace tandem::controller
