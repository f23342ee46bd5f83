#include <algorithm>
#include <numeric>
#include <optional>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "cli/commands/commands.h"
#include "cli/terminal/display_text.h"
#include "cli/terminal/error.h"
#include "cli/terminal/message_text.h"
#include "cli/terminal/number_text.h"
#include "cli/terminal/table.h"
#include "cli/watch/watch_state.h"
#include "nlohmann/json.hpp"

namespace tandem::cli {
namespace {

using Json = nlohmann::ordered_json;

struct StepNorms {
  int64_t step = 0;
  v1::Norms norms;
  v1::ParameterTable table;
};

// The last report with norms of steps first to last (0: to the newest).
absl::StatusOr<std::optional<StepNorms>> Find(Client& client, const std::string& job, int64_t first,
                                              int64_t last) {
  std::optional<StepNorms> found;
  v1::ParameterTable table;
  const absl::Status status =
      client.ListReports(job, first, last, /*norms=*/true, [&](const v1::ListReportsResponse& page) {
        if (page.has_table()) {
          table = page.table();
        }
        for (const v1::StepReport& report : page.reports()) {
          if (report.norms().weight_size() > 0) {
            found = StepNorms{report.step(), report.norms(), table};
          }
        }
        return true;
      });
  if (!status.ok()) {
    return status;
  }
  if (found.has_value()) {
    found->table = table;
  }
  return found;
}

std::string ItemName(const StepNorms& norms, int i) {
  return i < norms.table.parameters_size() ? norms.table.parameters(i).name() : absl::StrCat("parameter ", i);
}

void PrintJson(Context& context, const StepNorms& norms, const std::vector<int>& order) {
  std::string text;
  for (const int i : order) {
    Json row = {{"step", norms.step}, {"name", ItemName(norms, i)}};
    if (i < norms.table.parameters_size()) {
      row["shape"] = std::vector<int64_t>(norms.table.parameters(i).shape().begin(),
                                          norms.table.parameters(i).shape().end());
    }
    const auto put = [&](const char* key, const auto& values) {
      if (i < values.size()) {
        row[key] = values.Get(i);
      }
    };
    put("weight", norms.norms.weight());
    put("gradient", norms.norms.gradient());
    put("update", norms.norms.update());
    put("rms", norms.norms.rms());
    put("max_abs", norms.norms.max_abs());
    absl::StrAppend(&text, row.dump(-1, ' ', false, Json::error_handler_t::replace), "\n");
  }
  context.console.Write(Stream::kOut, text);
}

void PrintTable(Context& context, const StepNorms& norms, const std::vector<int>& order) {
  Table table({{.heading = absl::StrCat("STEP ", norms.step), .shrinks = true, .keep_end = true},
               {.heading = "SHAPE"},
               {.heading = "WEIGHT", .align = Table::Align::kRight},
               {.heading = "GRADIENT", .align = Table::Align::kRight},
               {.heading = "UPDATE", .align = Table::Align::kRight},
               {.heading = "UPDATE/WEIGHT", .align = Table::Align::kRight}});
  for (const int i : order) {
    const auto cell = [&](const auto& values) {
      return i < values.size() ? MagnitudeText(values.Get(i)) : "";
    };
    table.Add({ItemName(norms, i),
               i < norms.table.parameters_size() ? absl::StrJoin(norms.table.parameters(i).shape(), "x") : "",
               cell(norms.norms.weight()), cell(norms.norms.gradient()), cell(norms.norms.update()),
               ScientificText(UpdateRatio(norms.norms, i))});
  }
  context.console.Write(Stream::kOut, table.Render(TableWidth(context), context.console.unicode()));
}

}  // namespace

int Norms(Context& context, const NormsOptions& options) {
  const std::unique_ptr<Client> client = Dial(context);
  if (client == nullptr) {
    return kUsage;
  }
  const std::string what = absl::StrCat("norms ", Escape(options.job));
  const absl::StatusOr<v1::Job> job = client->GetJob(options.job);
  if (!job.ok()) {
    return Fail(context.console, CallError(job.status(), what, client->address()));
  }
  // Without a step the newest: the last few reports have it, unless norms were dropped under load.
  const int64_t newest = std::max<int64_t>(1, job->last_step());
  absl::StatusOr<std::optional<StepNorms>> norms = options.step > 0
                                                       ? Find(*client, job->id(), options.step, options.step)
                                                       : Find(*client, job->id(), newest, 0);
  if (norms.ok() && !norms->has_value() && options.step == 0) {
    norms = Find(*client, job->id(), std::max<int64_t>(1, newest - 200), 0);
  }
  if (!norms.ok()) {
    return Fail(context.console, CallError(norms.status(), what, client->address()));
  }
  if (!norms->has_value()) {
    if (!job->resolved().report().parameter_norms()) {
      return Fail(
          context.console, kFailed,
          absl::StrCat(what, ": the job keeps no norms; set report.parameter_norms: true in its file"));
    }
    if (options.step > job->last_step()) {
      return Fail(
          context.console, kNotFound,
          absl::StrCat(what, ": step ", options.step, " is not there; the newest is ", job->last_step()));
    }
    if (options.step == 0) {
      return Fail(
          context.console, kNotFound,
          absl::StrCat(what, ": the job ",
                       job->last_step() == 0 ? "has made no step yet" : "has none of its newest steps", " (",
                       StateText(job->state()), ")"));
    }
    return Fail(context.console, kNotFound,
                absl::StrCat(what, ": none are kept of step ", options.step,
                             "; the newest steps have them: leave --step away"));
  }
  std::vector<int> order;
  if (options.top > 0) {
    order = LargestUpdates((*norms)->norms, options.top);
  } else {
    order.resize(static_cast<size_t>((*norms)->norms.weight_size()));
    std::iota(order.begin(), order.end(), 0);
  }
  if (options.format == Format::kJson) {
    PrintJson(context, **norms, order);
  } else {
    PrintTable(context, **norms, order);
  }
  return context.console.OutClosed() ? kOutputClosed : kOk;
}

}  // namespace tandem::cli
