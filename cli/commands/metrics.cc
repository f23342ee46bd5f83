// SPDX-License-Identifier: Apache-2.0
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "cli/commands/commands.h"
#include "cli/terminal/display_text.h"
#include "cli/terminal/error.h"
#include "cli/terminal/number_text.h"
#include "cli/terminal/table.h"
#include "cli/watch/watch_view.h"
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

}  // namespace

Outcome Metrics(Context& context, Client& client, const MetricsOptions& options) {
  if (options.moe) {
    return ExpertLoads(context, client, options);
  }
  std::vector<Table::Column> columns = {Right("STEP"),      Right("LOSS"),          Right("VALIDATION"),
                                        Right("GRAD NORM"), Right("LEARNING RATE"), Right("TOKENS"),
                                        Right("SECONDS")};
  std::vector<std::vector<std::string>> rows;
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

}  // namespace tandem::cli
