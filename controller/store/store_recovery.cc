// SPDX-License-Identifier: Apache-2.0
// Whether the database has lost what was committed, and its restoration from the journal.
#include <algorithm>
#include <filesystem>

#include "absl/strings/str_cat.h"
#include "controller/core/decide.h"
#include "controller/store/sqlite.h"
#include "controller/store/store.h"
#include "platform/log.h"
#include "platform/status_macros.h"

namespace tandem::controller {

absl::Status Store::CheckComplete() {
  std::error_code error;
  absl::StatusOr<std::optional<Journal::Content>> former = journal_.Read();
  if (absl::IsDataLoss(former.status())) {
    platform::Log(
        platform::LogLevel::kWarning,
        "the journal of the store cannot be read, so it is not known whether the store has lost events",
        {{"error", std::string(former.status().message())}});
    return absl::OkStatus();
  }
  TANDEM_ASSIGN_OR_RETURN(former_, std::move(former));
  if (!former_.has_value()) {
    const std::string history = (std::filesystem::path(path_).parent_path() / "history.db").string();
    return store_id_.empty() && std::filesystem::exists(history, error)
               ? absl::DataLossError(
                     absl::StrCat(path_, " is missing or empty, and ", history,
                                  " beside it has the reports of its jobs; to begin anew, move that away"))
               : absl::OkStatus();
  }
  if (store_id_ != former_->store_id) {
    return absl::DataLossError(
        absl::StrCat(path_, " ", store_id_.empty() ? "is missing or empty" : "is store " + store_id_,
                     ", and ", journal_.path(), " beside it is of store ", former_->store_id,
                     "; to go on with what is left, move that away"));
  }
  int64_t last = 0;
  Statement has_events = db_->Prepare("SELECT count(*) FROM sqlite_master WHERE name = 'events'");
  TANDEM_ASSIGN_OR_RETURN(const int64_t num_tables, ReadNumber(has_events));
  if (num_tables > 0) {
    Statement last_event = db_->Prepare("SELECT coalesce(max(seq), 0) FROM events");
    TANDEM_ASSIGN_OR_RETURN(last, ReadNumber(last_event));
  }
  if (last < former_->seq) {
    return absl::DataLossError(
        absl::StrCat(path_, " is damaged: its last event is ", last, ", and ", former_->seq,
                     " were committed; to go on with what is left, move ", journal_.path(), " away"));
  }
  term_ = std::max(term_, former_->term);
  std::erase_if(former_->events, [&](const v1::Event& event) { return event.seq() <= last; });
  if (former_->is_cut && !former_->events.empty()) {
    platform::Log(platform::LogLevel::kError,
                  "the store and its journal are damaged: events after this one are lost, if there were any",
                  {{"seq", absl::StrCat(former_->events.back().seq())}});
  }
  return absl::OkStatus();
}

absl::Status Store::Replay(State& state) {
  if (!former_.has_value() || former_->events.empty()) {
    return absl::OkStatus();
  }
  std::set<std::string> ids;
  for (const v1::Event& event : former_->events) {
    const bool known = event.job_id().empty() || event.has_submitted() != state.jobs.contains(event.job_id());
    if (event.seq() != state.last_seq + 1 || !known) {
      return absl::DataLossError(
          absl::StrCat(path_, " is damaged: event ", state.last_seq + 1,
                       " is missing, and the journal has no more than event ", event.seq(),
                       " and later ones; to go on with what is left, move ", journal_.path(), " away"));
    }
    Apply(event, state);
    ids.insert(event.job_id());
  }
  std::vector<const JobEntry*> rows;
  for (const std::string& id : ids) {
    if (const auto it = state.jobs.find(id); it != state.jobs.end()) {
      rows.push_back(&it->second);
    }
  }
  TANDEM_RETURN_IF_ERROR(CommitNow(former_->events, rows));
  platform::Log(platform::LogLevel::kError,
                "the log of the store is damaged; the events that it has lost were restored from the journal",
                {{"store", path_},
                 {"first", absl::StrCat(former_->events.front().seq())},
                 {"last", absl::StrCat(state.last_seq)}});
  return absl::OkStatus();
}

}  // namespace tandem::controller
