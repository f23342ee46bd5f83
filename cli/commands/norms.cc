// SPDX-License-Identifier: Apache-2.0
#include <numeric>
#include <optional>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "cli/commands/commands.h"
#include "cli/commands/report_details.h"
#include "cli/terminal/display_text.h"
#include "cli/terminal/error.h"
#include "cli/terminal/number_text.h"
#include "cli/terminal/table.h"
#include "cli/watch/watch_state.h"
#include "nlohmann/json.hpp"

namespace tandem::cli {
namespace {

using Json = nlohmann::ordered_json;

std::string ItemName(const ReportDetails& norms, int i) {
  return i < norms.table.parameters_size() ? norms.table.parameters(i).name() : absl::StrCat("parameter ", i);
}

void PrintJson(Context& context, const ReportDetails& norms, const std::vector<int>& order) {
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

void PrintTable(Context& context, const ReportDetails& norms, const std::vector<int>& order) {
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
  int code = kOk;
  const std::optional<ReportDetails> norms =
      FindDetails(context, *client,
                  {.job = options.job,
                   .step = options.step,
                   .what = absl::StrCat("norms ", Escape(options.job)),
                   .has_them = [](const v1::Norms& of) { return of.weight_size() > 0; },
                   .none =
                       [](const v1::Job& job) {
                         return job.resolved().report().parameter_norms()
                                    ? ""
                                    : "the job keeps no norms; set report.parameter_norms: true in its file";
                       }},
                  code);
  if (!norms.has_value()) {
    return code;
  }
  std::vector<int> order;
  if (options.top > 0) {
    order = LargestUpdates(norms->norms, options.top);
  } else {
    order.resize(static_cast<size_t>(norms->norms.weight_size()));
    std::iota(order.begin(), order.end(), 0);
  }
  if (options.format == Format::kJson) {
    PrintJson(context, *norms, order);
  } else {
    PrintTable(context, *norms, order);
  }
  return context.console.OutClosed() ? kOutputClosed : kOk;
}

}  // namespace tandem::cli
