// SPDX-License-Identifier: Apache-2.0
// The commands `metrics` and `norms`, which print the reports of a job's steps.
#include <algorithm>
#include <cmath>
#include <map>
#include <numeric>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "cli/commands/commands.h"
#include "cli/terminal/display_text.h"
#include "cli/terminal/error.h"
#include "cli/terminal/message_text.h"
#include "cli/terminal/number_text.h"
#include "cli/terminal/table.h"
#include "cli/watch/watch_state.h"
#include "cli/watch/watch_view.h"
#include "nlohmann/json.hpp"
#include "plan/quantity_text.h"
#include "platform/status_macros.h"

namespace tandem::cli {
namespace {

using Json = nlohmann::ordered_json;

// The details of one step's report. The controller keeps them for the newest steps only.
struct ReportDetails {
  int64_t step = 0;
  v1::Norms norms;
  v1::ParameterTable table;
};

using HasThem = std::function<bool(const v1::Norms&)>;  // whether a report has what the command shows

// Returns the details of the last report that has them, from the steps first to last (0: to the newest).
absl::StatusOr<std::optional<ReportDetails>> FindIn(Client& client, const v1::Job& job,
                                                    const HasThem& has_them, int64_t first, int64_t last) {
  std::optional<ReportDetails> found;
  v1::ParameterTable table;
  TANDEM_RETURN_IF_ERROR(
      client.ListReports(job.id(), first, last, /*norms=*/true, [&](const v1::ListReportsResponse& page) {
        if (page.has_table()) {
          table = page.table();
        }
        for (const v1::StepReport& report : page.reports()) {
          if (has_them(report.norms())) {
            found = ReportDetails{report.step(), report.norms()};
          }
        }
        return true;
      }));
  if (found.has_value()) {
    found->table = std::move(table);
  }
  return found;
}

// Returns the details of `step`, or of the newest that has them if it is 0. Failure if there are none.
absl::StatusOr<ReportDetails> FindDetails(const Context& context, Client& client, const v1::Job& job,
                                          int64_t step, const HasThem& has_them) {
  const int64_t newest = std::max<int64_t>(1, job.last_step());
  TANDEM_ASSIGN_OR_RETURN(std::optional<ReportDetails> found,
                          FindIn(client, job, has_them, step > 0 ? step : newest, step));
  if (!found.has_value() && step == 0) {  // one of the last few has them, unless they were dropped under load
    TANDEM_ASSIGN_OR_RETURN(found, FindIn(client, job, has_them, std::max<int64_t>(1, newest - 200), 0));
  }
  if (found.has_value()) {
    return *std::move(found);
  }
  return Failure(
      kNotFound,
      absl::StrCat(
          context.what, ": ",
          step > job.last_step()
              ? absl::StrCat("step ", step, " has not been made yet; the newest is ", job.last_step())
          : step > 0
              ? absl::StrCat("none are kept for step ", step, "; the newest steps have them: omit --step")
              : absl::StrCat("the job ",
                             job.last_step() == 0 ? "has made no step yet" : "has none for its newest steps",
                             " (", StateText(job.state()), ")")));
}

// Why a step changed no weight; empty if it did.
std::string NonfiniteText(const v1::StepReport& report) {
  return report.nonfinite() > 0
             ? absl::StrCat(report.nonfinite(), " gradient elements not finite, weights left alone")
             : "";
}

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
  context.Print(text);
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
  context.Print(table);
}

Outcome ExpertLoads(Context& context, Client& client, const MetricsOptions& options) {
  context.what = absl::StrCat("metrics --moe ", Escape(options.job));
  TANDEM_ASSIGN_OR_RETURN(const v1::Job job, client.GetJob(options.job));
  const v1::Model& model = job.resolved().model();
  if (!model.has_moe()) {
    return Failure(kFailed, absl::StrCat(context.what, ": its model has no sparse layers"));
  }
  TANDEM_ASSIGN_OR_RETURN(const ReportDetails details,
                          FindDetails(context, client, job, options.step,
                                      [](const v1::Norms& norms) { return norms.experts_size() > 0; }));
  if (options.format == Format::kJson) {
    PrintLoadsAsJson(context, details);
  } else {
    PrintLoads(context, details);
    if (model.model_type() == "deepseek_v3") {
      Note(context.console,
           "TOKENS are routed by scores and biases; BALANCE LOSS counts the experts with the highest scores, "
           "without biases");
    }
  }
  return kOk;
}

std::string ItemName(const ReportDetails& norms, int i) {
  return i < norms.table.parameters_size() ? norms.table.parameters(i).name() : absl::StrCat("parameter ", i);
}

int64_t Elements(const ReportDetails& norms, int i) {
  int64_t elements = 1;
  for (const int64_t extent : norms.table.parameters(i).shape()) {
    elements *= extent;
  }
  return elements;
}

// Computes the root mean square from the L2 norm; nullopt if the parameter's shape is not known.
std::optional<double> RootMeanSquare(const ReportDetails& norms, int i, double l2) {
  if (i >= norms.table.parameters_size() || Elements(norms, i) == 0) {
    return std::nullopt;
  }
  return l2 / std::sqrt(static_cast<double>(Elements(norms, i)));
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
    put("gradient_max_abs", norms.norms.gradient_max_abs());
    put("update_max_abs", norms.norms.update_max_abs());
    const auto put_rms = [&](const char* key, const auto& values) {
      if (i < values.size()) {
        if (const std::optional<double> rms = RootMeanSquare(norms, i, values.Get(i)); rms.has_value()) {
          row[key] = *rms;
        }
      }
    };
    put_rms("gradient_rms", norms.norms.gradient());
    put_rms("update_rms", norms.norms.update());
    absl::StrAppend(&text, row.dump(-1, ' ', false, Json::error_handler_t::replace), "\n");
  }
  context.Print(text);
}

// One parameter's numbers in the table; a report may lack some.
struct Shown {
  std::optional<double> weight;
  std::optional<double> gradient;
  std::optional<double> update;
};

Shown ShownOf(const ReportDetails& norms, int i, const std::string& norm) {
  const auto at = [&](const auto& values) -> std::optional<double> {
    return i < values.size() ? std::optional<double>(values.Get(i)) : std::nullopt;
  };
  if (norm == "max") {
    return {at(norms.norms.max_abs()), at(norms.norms.gradient_max_abs()), at(norms.norms.update_max_abs())};
  }
  const auto l2_or_rms = [&](std::optional<double> l2) {
    return norm == "rms" && l2.has_value() ? RootMeanSquare(norms, i, *l2) : l2;
  };
  return {l2_or_rms(at(norms.norms.weight())), l2_or_rms(at(norms.norms.gradient())),
          l2_or_rms(at(norms.norms.update()))};
}

void PrintTable(Context& context, const ReportDetails& norms, const std::vector<int>& order,
                const std::string& norm) {
  Table table({ShrinkingLeft(absl::StrCat("STEP ", norms.step)), "SHAPE", Right("WEIGHT"), Right("GRADIENT"),
               Right("UPDATE"), Right("UPDATE/WEIGHT")});
  for (const int i : order) {
    const Shown shown = ShownOf(norms, i, norm);
    const auto cell = [](std::optional<double> value) {
      return value.has_value() ? MagnitudeText(*value) : "";
    };
    const bool has_ratio = shown.update.has_value() && shown.weight.value_or(0) != 0;
    table.Add({ItemName(norms, i),
               i < norms.table.parameters_size() ? absl::StrJoin(norms.table.parameters(i).shape(), "x") : "",
               cell(shown.weight), cell(shown.gradient), cell(shown.update),
               has_ratio ? ScientificText(*shown.update / *shown.weight) : ""});
  }
  context.Print(table);
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
        context.Print(text);
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
    context.Print(table);
  }
  if (!any) {
    Note(context.console, absl::StrCat("job ", Escape(options.job), " has reported no step yet"));
  }
  return kOk;
}

Outcome Norms(Context& context, Client& client, const NormsOptions& options) {
  TANDEM_ASSIGN_OR_RETURN(const v1::Job job, client.GetJob(options.job));
  if (!job.resolved().report().parameter_norms()) {
    return Failure(kFailed, absl::StrCat(context.what,
                                         ": the job keeps no norms; set report.parameter_norms: true in "
                                         "its file"));
  }
  TANDEM_ASSIGN_OR_RETURN(const ReportDetails norms,
                          FindDetails(context, client, job, options.step,
                                      [](const v1::Norms& of) { return of.weight_size() > 0; }));
  std::vector<int> order;
  if (options.top > 0) {
    order = LargestUpdates(norms.norms, options.top);
  } else {
    order.resize(static_cast<size_t>(norms.norms.weight_size()));
    std::iota(order.begin(), order.end(), 0);
  }
  if (options.format == Format::kJson) {
    PrintJson(context, norms, order);
  } else {
    PrintTable(context, norms, order, options.norm);
  }
  return kOk;
}

}  // namespace tandem::cli
