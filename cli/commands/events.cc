#include "cli/commands/events.h"

#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "cli/commands/commands.h"
#include "cli/terminal/display_text.h"
#include "cli/terminal/error.h"
#include "cli/terminal/message_text.h"
#include "cli/terminal/number_text.h"
#include "cli/terminal/table.h"

namespace tandem::cli {

std::string RenderEvents(const std::vector<v1::Event>& events, absl::TimeZone zone, int width, bool unicode) {
  Table table({{.heading = "TIME"},
               {.heading = "STATE"},
               {.heading = "STEP", .align = Table::Align::kRight},
               {.heading = "BY", .shrinks = true},
               {.heading = "REASON"},
               {.heading = "MESSAGE", .shrinks = true}});
  for (const v1::Event& event : events) {
    std::string message = event.message();
    if (message.empty() && event.has_checkpoint()) {
      message = absl::StrCat(event.checkpoint().path(), ", ", BytesText(event.checkpoint().bytes()));
    }
    const bool moved = event.to() != v1::JOB_STATE_UNSPECIFIED && event.to() != event.from();
    const int64_t step = event.has_checkpoint() ? event.checkpoint().step() : event.step();
    table.Add({TimeText(event.time(), zone), moved ? StateText(event.to()) : "",
               step > 0 ? absl::StrCat(step) : "", event.actor(),
               event.reason().empty() && event.has_checkpoint() ? "CheckpointCommitted" : event.reason(),
               message});
  }
  return table.Render(width, unicode);
}

int Events(Context& context, const JobOptions& options) {
  const std::unique_ptr<Client> client = Dial(context);
  if (client == nullptr) {
    return kUsage;
  }
  const absl::StatusOr<std::vector<v1::Event>> events = client->ListEvents(options.job);
  if (!events.ok()) {
    return Fail(context.console,
                CallError(events.status(), absl::StrCat("events ", Escape(options.job)), client->address()));
  }
  if (options.format == Format::kJson) {
    for (const v1::Event& event : *events) {
      context.console.Write(Stream::kOut, absl::StrCat(ToJson(event, -1), "\n"));
    }
    return kOk;
  }
  context.console.Write(Stream::kOut,
                        RenderEvents(*events, context.zone, TableWidth(context), context.console.unicode()));
  return kOk;
}

}  // namespace tandem::cli
