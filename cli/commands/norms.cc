// SPDX-License-Identifier: Apache-2.0
#include <cmath>
#include <numeric>
#include <optional>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "cli/commands/commands.h"
#include "cli/commands/report_details.h"
#include "cli/terminal/error.h"
#include "cli/terminal/number_text.h"
#include "cli/terminal/table.h"
#include "cli/watch/watch_state.h"
#include "nlohmann/json.hpp"
#include "platform/status_macros.h"

namespace tandem::cli {
namespace {

using Json = nlohmann::ordered_json;

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

// From an L2 norm; none where the parameter's shape is not known.
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
  context.console.Write(Stream::kOut, text);
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
  context.console.Write(Stream::kOut, table.Render(context.TableWidth(), context.console.unicode()));
}

}  // namespace

Outcome Norms(Context& context, Client& client, const NormsOptions& options) {
  TANDEM_ASSIGN_OR_RETURN(
      const ReportDetails norms,
      FindDetails(client,
                  {.job = options.job,
                   .step = options.step,
                   .what = context.what,
                   .has_them = [](const v1::Norms& of) { return of.weight_size() > 0; },
                   .none =
                       [](const v1::Job& job) {
                         return job.resolved().report().parameter_norms()
                                    ? ""
                                    : "the job keeps no norms; set report.parameter_norms: true in its file";
                       }}));
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
  return context.console.OutClosed() ? kOutputClosed : kOk;
}

}  // namespace tandem::cli
