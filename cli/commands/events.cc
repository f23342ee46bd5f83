// SPDX-License-Identifier: Apache-2.0
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "cli/cluster/address.h"
#include "cli/commands/commands.h"
#include "cli/terminal/display_text.h"
#include "cli/terminal/error.h"
#include "cli/terminal/interrupts.h"
#include "cli/terminal/message_text.h"
#include "cli/terminal/number_text.h"
#include "cli/terminal/table.h"
#include "platform/status_macros.h"
#include "proto/reasons.h"

namespace tandem::cli {
namespace {

// Returns the state to which the event moved its job; empty if it did not move it.
std::string NewState(const v1::Event& event) {
  const bool moved = event.to() != v1::JOB_STATE_UNSPECIFIED && event.to() != event.from();
  return moved ? StateText(event.to()) : "";
}

int64_t StepOf(const v1::Event& event) {
  return event.has_checkpoint() ? event.checkpoint().step() : event.step();
}

constexpr absl::Duration kNextLook = absl::Milliseconds(250);

// "2024-05-01 12:00:01  RUNNING    step 20  Ready: every rank is ready", cut to the width.
std::string EventLine(const v1::Event& event, bool with_job, const Context& context) {
  std::string line = absl::StrCat(TimeText(event.time(), context.zone), "  ", PadRight(NewState(event), 10));
  if (with_job) {
    absl::StrAppend(&line, "  ", PadRight(event.job_id(), 12));
  }
  absl::StrAppend(&line, "  ", StepOf(event) > 0 ? absl::StrCat("step ", StepOf(event), "  ") : "",
                  Escape(event.reason()), event.message().empty() ? "" : ": ", Escape(event.message()));
  const int width = context.TableWidth();
  return absl::StrCat(width > 0 ? Cut(line, width, context.console.unicode()) : line, "\n");
}

// Prints past events, then new ones as they happen, until the job ends or the output's reader is gone.
Outcome FollowEvents(Context& context, Client& client, const EventsOptions& options) {
  const Interrupts interrupts;
  int64_t last_seq = 0;
  bool began = false;
  bool away = false;
  while (true) {
    const absl::StatusOr<std::vector<v1::Event>> events = client.ListEvents(options.job, last_seq);
    const bool may_return = absl::IsUnavailable(events.status()) || absl::IsDeadlineExceeded(events.status());
    if (!events.ok() && (!began || !may_return)) {
      return events.status();
    }
    if (!events.ok()) {
      if (const std::string ended = WhyNoneReturns(client.address(), context.environment); !ended.empty()) {
        return Failure(kUnreachable, absl::StrCat(context.what, ": ", ended));
      }
    }
    if (away != !events.ok()) {
      away = !events.ok();
      Note(context.console, away ? absl::StrCat("no controller answers at ", client.address().target,
                                                "; events go on when one does")
                                 : "the controller is back");
    }
    bool ended = false;
    for (const v1::Event& event : events.ok() ? *events : std::vector<v1::Event>()) {
      last_seq = event.seq();
      ended = !options.job.empty() && HasEnded(event.to());
      context.Print(options.format == Format::kJson   ? ToJson(event, -1) + "\n"
                    : options.format == Format::kYaml ? ToYamlItem(event)
                                                      : EventLine(event, options.job.empty(), context));
    }
    began = began || events.ok();
    if (ended) {
      return kOk;
    }
    if (context.console.OutClosed() || context.console.ReaderHasLeft()) {
      return kOutputClosed;
    }
    for (absl::Duration slept; slept < kNextLook && interrupts.Count() == 0; slept += kNextLook / 5) {
      absl::SleepFor(kNextLook / 5);
    }
    if (interrupts.Count() > 0) {
      return kCancelled;
    }
  }
}

}  // namespace

std::string RenderEvents(const std::vector<v1::Event>& events, bool with_job, const Context& context) {
  std::vector<Table::Column> columns = {"TIME",          "STATE",  Right("STEP"),
                                        Shrinking("BY"), "REASON", Shrinking("MESSAGE")};
  if (with_job) {
    columns.insert(columns.begin() + 1, "JOB");
  }
  Table table(std::move(columns));
  for (const v1::Event& event : events) {
    const v1::CheckpointCommitted& saved = event.checkpoint();
    const bool is_save = event.has_checkpoint();
    std::vector<std::string> cells = {
        TimeText(event.time(), context.zone),
        NewState(event),
        StepOf(event) > 0 ? absl::StrCat(StepOf(event)) : "",
        event.actor(),
        event.reason().empty() && is_save ? proto::ReasonCode("CheckpointCommitted") : event.reason(),
        event.message().empty() && is_save ? absl::StrCat(saved.path(), ", ", BytesText(saved.bytes()))
                                           : event.message()};
    if (with_job) {
      cells.insert(cells.begin() + 1, event.job_id());
    }
    table.Add(std::move(cells));
  }
  return context.Rendered(table);
}

Outcome Events(Context& context, Client& client, const EventsOptions& options) {
  if (options.follow) {
    return FollowEvents(context, client, options);
  }
  TANDEM_ASSIGN_OR_RETURN(const std::vector<v1::Event> events, client.ListEvents(options.job));
  if (options.format == Format::kJson) {
    for (const v1::Event& event : events) {
      context.Print(absl::StrCat(ToJson(event, -1), "\n"));
    }
    return kOk;
  }
  if (options.format == Format::kYaml) {
    context.Print(ToYamlList(events));
    return kOk;
  }
  context.Print(RenderEvents(events, /*with_job=*/options.job.empty(), context));
  return kOk;
}

}  // namespace tandem::cli
