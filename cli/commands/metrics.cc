// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <map>
#include <numeric>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "cli/commands/commands.h"
#include "cli/commands/report_details.h"
#include "cli/terminal/display_text.h"
#include "cli/terminal/error.h"
#include "cli/terminal/number_text.h"
#include "cli/terminal/table.h"
#include "cli/watch/watch_state.h"
#include "cli/watch/watch_view.h"
#include "nlohmann/json.hpp"
#include "plan/quantity_text.h"
#include "platform/status_macros.h"

namespace tandem::cli {
namespace {

// "" where the step was applied.
std::string NonfiniteText(const v1::StepReport& report) {
  return report.nonfinite() > 0
             ? absl::StrCat(report.nonfinite(), " gradient elements not finite, weights left alone")
             : "";
}

using Json = nlohmann::ordered_json;

void PrintLoadsAsJson(Context& context, const ReportDetails& details) {
  std::string text;
  for (const v1::ExpertLoad& load : details.norms.experts()) {
    const Json row = {{"step", details.step},
                      {"layer", load.layer()},
                      {"tokens", std::vector<int64_t>(load.tokens().begin(), load.tokens().end())},
                      {"dropped", load.dropped()},
                      {"balance_loss", load.balance_loss()},
                      {"z_loss", load.z_loss()},
                      {"further_passes", load.further_passes()}};
    absl::StrAppend(&text, row.dump(), "\n");
  }
  context.console.Write(Stream::kOut, text);
}

void PrintLoads(Context& context, const ReportDetails& details) {
  Table table({absl::StrCat("STEP ", details.step), Right("EXPERTS"), Right("TOKENS"), Right("LARGEST/MEAN"),
               Right("SMALLEST/MEAN"), Right("IDLE"), Right("DROPPED"), Right("BALANCE LOSS"),
               Right("Z LOSS"), Right("FURTHER PASSES")});
  for (const v1::ExpertLoad& load : details.norms.experts()) {
    const auto& tokens = load.tokens();
    const int64_t sum = std::accumulate(tokens.begin(), tokens.end(), int64_t{0});
    const auto [smallest, largest] = std::minmax_element(tokens.begin(), tokens.end());
    const auto in_means = [&](auto extreme) {
      return sum == 0
                 ? ""
                 : absl::StrFormat("%.2f", static_cast<double>(*extreme) *
                                               static_cast<double>(tokens.size()) / static_cast<double>(sum));
    };
    table.Add({absl::StrCat("layer ", load.layer()), absl::StrCat(tokens.size()), plan::GroupedText(sum),
               in_means(largest), in_means(smallest),
               absl::StrCat(std::count(tokens.begin(), tokens.end(), 0)), plan::GroupedText(load.dropped()),
               MagnitudeText(load.balance_loss()), MagnitudeText(load.z_loss()),
               plan::GroupedText(load.further_passes())});
  }
  context.console.Write(Stream::kOut, table.Render(context.TableWidth(), context.console.unicode()));
}

}  // namespace

Outcome Metrics(Context& context, Client& client, const MetricsOptions& options) {
  if (options.moe) {
    return ExpertLoads(context, client, options);
  }
  std::vector<std::vector<std::string>> rows;
  std::vector<std::map<std::string, double>> texts;  // of each row: losses of named validation texts
  std::set<std::string> names;
  bool nonfinite = false;  // of any step
  bool any = false;
  TANDEM_RETURN_IF_ERROR(
      client.ListReports(options.job, 0, 0, /*norms=*/false, [&](const v1::ListReportsResponse& page) {
        std::string text;
        for (const v1::StepReport& report : page.reports()) {
          any = true;
          if (options.format == Format::kJson) {
            absl::StrAppend(&text, ReportJson(report, ""), "\n");
            continue;
          }
          const auto validation = report.scalars().find("validation_loss");
          const bool trained = report.step() > 0;
          nonfinite |= report.nonfinite() > 0;
          for (const auto& [name, loss] : texts.emplace_back(ValidationTexts(report))) {
            names.insert(name);
          }
          rows.push_back({absl::StrCat(report.step()), trained ? LossText(report.loss()) : "",
                          validation == report.scalars().end() ? "" : LossText(validation->second),
                          trained ? MagnitudeText(report.grad_norm()) : "",
                          trained ? ScientificText(report.learning_rate()) : "",
                          trained ? plan::GroupedText(report.tokens()) : "",
                          trained ? MagnitudeText(report.seconds()) : "", NonfiniteText(report)});
        }
        context.console.Write(Stream::kOut, text);
        return !context.console.OutClosed();
      }));
  if (options.format == Format::kTable && any) {
    std::vector<Table::Column> columns = {Right("STEP"), Right("LOSS"), Right("VALIDATION")};
    for (const std::string& name : names) {
      columns.push_back(Right(absl::AsciiStrToUpper(Escape(name))));
    }
    for (const char* column : {"GRAD NORM", "LEARNING RATE", "TOKENS", "SECONDS"}) {
      columns.push_back(Right(column));
    }
    for (size_t i = 0; i < rows.size(); ++i) {
      std::vector<std::string> of_texts;
      for (const std::string& name : names) {
        const auto found = texts[i].find(name);
        of_texts.push_back(found == texts[i].end() ? "" : LossText(found->second));
      }
      rows[i].insert(rows[i].begin() + 3, of_texts.begin(), of_texts.end());
    }
    if (nonfinite) {
      columns.push_back("NOTE");
    }
    Table table(columns);
    for (std::vector<std::string>& row : rows) {
      row.resize(columns.size());
      table.Add(std::move(row));
    }
    context.console.Write(Stream::kOut, table.Render(context.TableWidth(), context.console.unicode()));
  }
  if (!any) {
    Note(context.console, absl::StrCat("job ", Escape(options.job), " has reported no step yet"));
  }
  return context.console.OutClosed() ? kOutputClosed : kOk;
}

Outcome ExpertLoads(Context& context, Client& client, const MetricsOptions& options) {
  context.what = absl::StrCat("metrics --moe ", Escape(options.job));
  TANDEM_ASSIGN_OR_RETURN(
      const ReportDetails details,
      FindDetails(client, {.job = options.job,
                           .step = options.step,
                           .what = context.what,
                           .has_them = [](const v1::Norms& norms) { return norms.experts_size() > 0; },
                           .none =
                               [](const v1::Job& job) {
                                 return job.resolved().model().has_moe() ? ""
                                                                         : "its model has no sparse layers";
                               }}));
  if (options.format == Format::kJson) {
    PrintLoadsAsJson(context, details);
  } else {
    PrintLoads(context, details);
    const absl::StatusOr<v1::Job> job = client.GetJob(options.job);
    if (job.ok() && job->resolved().model().model_type() == "deepseek_v3") {
      Note(context.console,
           "TOKENS are routed by scores and biases; BALANCE LOSS counts the experts with the highest scores, "
           "without biases");
    }
  }
  return context.console.OutClosed() ? kOutputClosed : kOk;
}

}  // namespace tandem::cli
