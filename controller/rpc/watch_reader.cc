// SPDX-License-Identifier: Apache-2.0
#include "controller/rpc/watch_reader.h"

#include <algorithm>
#include <iterator>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "platform/status_macros.h"
#include "proto/time.h"

namespace tandem::controller {
namespace {

constexpr int kPage = 64;
// Reports come by another stream than the end of their job, and may come later.
constexpr absl::Duration kLateReports = absl::Seconds(60);
// If the ranks of a job have not moved for this long, its progress is read as often as this.
constexpr absl::Duration kQuiet = absl::Seconds(3);
constexpr absl::Duration kProgressPeriod = absl::Seconds(1);

}  // namespace

absl::StatusOr<std::unique_ptr<WatchReader>> WatchReader::Open(Store& store, History& history,
                                                               const ProgressBoard& progress,
                                                               const v1::WatchRequest& request,
                                                               absl::Time now) {
  std::unique_ptr<WatchReader> out(new WatchReader(store, history, progress, request));
  TANDEM_RETURN_IF_ERROR(out->Begin(now));
  return out;
}

absl::Status WatchReader::Begin(absl::Time now) {
  if (request_.norms() && !request_.reports()) {
    return absl::InvalidArgumentError("norms: they come with reports; ask for reports too");
  }
  min_interval_ = proto::FromProto(request_.min_interval());
  if (min_interval_ < absl::ZeroDuration()) {
    return absl::InvalidArgumentError("min_interval: must not be negative");
  }
  if (!request_.job().empty()) {
    TANDEM_ASSIGN_OR_RETURN(const v1::Job job, store_.Lookup(request_.job()));
    job_id_ = job.id();
  }
  seq_ = store_.LastSeq();
  return request_.cursor().empty() ? absl::OkStatus() : Resume(now);
}

absl::Status WatchReader::Resume(absl::Time now) {
  std::string bytes;
  WatchCursor cursor;
  if (!absl::WebSafeBase64Unescape(request_.cursor(), &bytes) || !cursor.ParseFromString(bytes)) {
    return absl::InvalidArgumentError(
        "cursor: must come from an earlier answer of this service; leave it empty to begin with a snapshot");
  }
  if (cursor.store_id() != store_.store_id() || cursor.seq() > seq_) {
    return absl::OutOfRangeError(absl::StrCat("cursor: of store ", cursor.store_id(), ", and this is ",
                                              store_.store_id(),
                                              "; leave it empty to begin with a snapshot"));
  }
  phase_ = Phase::kChanges;
  seq_ = cursor.seq();
  changed_due_ = cursor.changed_due();
  for (const WatchCursor::Reports& reports : cursor.reports()) {
    Reports& followed = reports_[reports.job_id()];
    followed.position = {.attempt = reports.attempt(), .step = reports.step()};
    // If the job ended before the cursor, no event will come that ends its reports.
    TANDEM_ASSIGN_OR_RETURN(const std::optional<v1::Job> job, store_.Find(reports.job_id()));
    if (!job.has_value() || IsTerminal(job->state())) {
      followed.ended = now;
    }
  }
  return absl::OkStatus();
}

std::string WatchReader::Cursor() const {
  WatchCursor cursor;
  cursor.set_store_id(store_.store_id());
  cursor.set_seq(seq_);
  cursor.set_changed_due(changed_due_);
  for (const auto& [job_id, reports] : reports_) {
    WatchCursor::Reports& out = *cursor.add_reports();
    out.set_job_id(job_id);
    out.set_attempt(reports.position.attempt);
    out.set_step(reports.position.step);
  }
  return absl::WebSafeBase64Escape(cursor.SerializeAsString());
}

absl::StatusOr<std::optional<v1::WatchResponse>> WatchReader::Next(absl::Time now) {
  due_ = absl::InfiniteFuture();
  if (page_.empty() && phase_ == Phase::kSnapshot) {
    TANDEM_RETURN_IF_ERROR(ReadSnapshot(now));
  }
  if (page_.empty() && phase_ == Phase::kSynced) {
    phase_ = Phase::kChanges;
    AddWithCursor("").set_synced(true);
  }
  // Reports come first, so that a client that leaves at the end of the job has seen all reports until then.
  if (page_.empty() && request_.reports()) {
    TANDEM_RETURN_IF_ERROR(ReadReports(now));
  }
  if (page_.empty()) {
    TANDEM_RETURN_IF_ERROR(ReadEvents(now));
  }
  if (page_.empty()) {
    LookAtProgress(now);
  }
  if (page_.empty()) {
    return std::nullopt;
  }
  std::optional<v1::WatchResponse> out = std::move(page_.front());
  page_.pop_front();
  return out;
}

// Progress has no cursor: a client that reconnects gets the progress of that moment.
void WatchReader::LookAtProgress(absl::Time now) {
  if (job_id_.empty()) {
    return;
  }
  if (now >= next_look_) {
    next_look_ = now + kProgressPeriod;
    std::optional<v1::Progress> progress = progress_.Find(job_id_);
    const bool quiet = progress && proto::FromProto(progress->age()) >= kQuiet;
    if (progress && (quiet || quiet_)) {
      *Add(job_id_).mutable_progress() = *std::move(progress);
    }
    quiet_ = quiet;
  }
  due_ = std::min(due_, next_look_);
}

v1::WatchResponse& WatchReader::Add(const std::string& job_id) {
  v1::WatchResponse& response = page_.emplace_back();
  response.set_job_id(job_id);
  return response;
}

v1::WatchResponse& WatchReader::AddWithCursor(const std::string& job_id) {
  v1::WatchResponse& response = Add(job_id);
  response.set_cursor(Cursor());
  return response;
}

void WatchReader::Follow(const v1::Job& job, absl::Time now) {
  if (!request_.reports()) {
    return;
  }
  const auto [it, added] = reports_.try_emplace(job.id());
  if (IsTerminal(job.state()) && it->second.ended == absl::InfiniteFuture()) {
    it->second.ended = now;
  }
}

absl::Status WatchReader::ReadSnapshot(absl::Time now) {
  std::vector<v1::Job> jobs;
  if (!job_id_.empty()) {
    TANDEM_ASSIGN_OR_RETURN(std::optional<v1::Job> job, store_.Find(job_id_));
    jobs.push_back(*std::move(job));
    phase_ = Phase::kSynced;
  } else {
    TANDEM_ASSIGN_OR_RETURN(auto list, store_.List(snapshot_before_, kPage, {}));
    for (auto& [seq, job] : list) {
      snapshot_before_ = seq;
      jobs.push_back(std::move(job));
    }
    if (list.size() < kPage) {
      phase_ = Phase::kSynced;
    }
  }
  for (v1::Job& job : jobs) {
    // A snapshot has no cursor: a client that loses the stream now gets all snapshots again.
    v1::WatchResponse& response = Add(job.id());
    // The reports begin after the snapshot's last_step.
    TANDEM_ASSIGN_OR_RETURN(History::Position last,
                            request_.reports() ? history_.Last(job.id()) : History::Position{});
    TANDEM_RETURN_IF_ERROR(FillLastStep(history_, job));
    if (!job_id_.empty() || !IsTerminal(job.state())) {
      Follow(job, now);
      const auto it = reports_.find(job.id());
      if (it != reports_.end()) {
        it->second.position = last;
      }
    }
    *response.mutable_snapshot() = std::move(job);
  }
  return absl::OkStatus();
}

absl::Status WatchReader::AddChanged(const std::string& job_id, absl::Time now) {
  TANDEM_ASSIGN_OR_RETURN(std::optional<v1::Job> job, store_.Find(job_id));
  TANDEM_RETURN_IF_ERROR(FillLastStep(history_, *job));
  Follow(*job, now);
  changed_due_ = false;
  *AddWithCursor(job_id).mutable_changed() = *std::move(job);
  return absl::OkStatus();
}

absl::Status WatchReader::ReadEvents(absl::Time now) {
  if (changed_due_) {  // the watch was resumed between an event and its job
    TANDEM_ASSIGN_OR_RETURN(const std::vector<v1::Event> last, store_.Events("", seq_ - 1, 1));
    changed_due_ = false;
    if (!last.empty() && !last.front().job_id().empty()) {
      TANDEM_RETURN_IF_ERROR(AddChanged(last.front().job_id(), now));
    }
  }
  TANDEM_ASSIGN_OR_RETURN(std::vector<v1::Event> events, store_.Events(job_id_, seq_, kPage));
  for (size_t i = 0; i < events.size(); ++i) {
    v1::Event& event = events[i];
    const std::string job_id = event.job_id();
    // The job follows its last event on this page, because its content is newer than the earlier events
    // anyway.
    const bool last = std::none_of(events.begin() + static_cast<ptrdiff_t>(i) + 1, events.end(),
                                   [&](const v1::Event& later) { return later.job_id() == job_id; });
    seq_ = event.seq();
    changed_due_ = last && !job_id.empty();
    *AddWithCursor(job_id).mutable_event() = std::move(event);
    if (changed_due_) {
      TANDEM_RETURN_IF_ERROR(AddChanged(job_id, now));
    }
  }
  return absl::OkStatus();
}

absl::Status WatchReader::ReadReports(absl::Time now) {
  // Reads the reports of one job, the next after the job that was read last, so that every job gets its
  // turn, and a client that reads slowly occupies no more memory.
  auto it = reports_.upper_bound(last_read_);
  for (size_t left = reports_.size(); left > 0 && page_.empty(); --left) {
    if (it == reports_.end()) {
      it = reports_.begin();
    }
    auto& [job_id, reports] = *it;
    const bool ended = reports.ended != absl::InfiniteFuture();
    std::vector<v1::StepReport> found;
    int64_t skipped = 0;
    if (min_interval_ == absl::ZeroDuration()) {
      TANDEM_ASSIGN_OR_RETURN(
          std::vector<v1::StepReport> next,
          history_.After(job_id, reports.position, request_.norms() ? 1 : kPage, request_.norms()));
      found = std::move(next);
    } else if (!ended && now < reports.last_sent + min_interval_) {
      due_ = std::min(due_, reports.last_sent + min_interval_);
    } else {
      TANDEM_ASSIGN_OR_RETURN(std::optional<v1::StepReport> newest,
                              history_.Newest(job_id, reports.position, request_.norms()));
      if (newest.has_value()) {
        const History::Position position{.attempt = newest->attempt(), .step = newest->step()};
        TANDEM_ASSIGN_OR_RETURN(const int64_t all, history_.CountAfter(job_id, reports.position));
        TANDEM_ASSIGN_OR_RETURN(const int64_t later, history_.CountAfter(job_id, position));
        skipped = std::max<int64_t>(0, all - later - 1);
        found.push_back(*std::move(newest));
      }
    }
    for (v1::StepReport& report : found) {
      last_read_ = job_id;
      reports.last_sent = now;
      const std::string digest = report.norms().table_digest();
      if (report.has_norms() && digest != reports.table) {
        TANDEM_ASSIGN_OR_RETURN(std::optional<v1::ParameterTable> table, history_.Table(digest));
        if (table.has_value()) {
          *AddWithCursor(job_id).mutable_table() = *std::move(table);
          reports.table = digest;
        }
      }
      reports.position = {.attempt = report.attempt(), .step = report.step()};
      v1::WatchResponse& response = AddWithCursor(job_id);
      response.set_skipped(std::exchange(skipped, 0));
      *response.mutable_report() = std::move(report);
    }
    // A job is kept until all its reports are read, even if that is late.
    const bool is_over = found.empty() && job_id_.empty() && now - reports.ended > kLateReports;
    it = is_over ? reports_.erase(it) : std::next(it);
  }
  return absl::OkStatus();
}

}  // namespace tandem::controller
