// SPDX-License-Identifier: Apache-2.0
#include <cstdint>
#include <cstdlib>
#include <exception>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "cli/commands/commands.h"
#include "cli/commands/job_file.h"
#include "cli/commands/plan_variants.h"
#include "cli/plan/memory_chart.h"
#include "cli/plan/timeline_chart.h"
#include "cli/terminal/display_text.h"
#include "cli/terminal/error.h"
#include "cli/terminal/number_text.h"
#include "cli/terminal/table.h"
#include "google/protobuf/util/message_differencer.h"
#include "jobspec/jobspec.h"
#include "jobspec/step_size.h"
#include "nlohmann/json.hpp"
#include "plan/advice.h"
#include "plan/graph_segments.h"
#include "plan/job_plan.h"
#include "plan/json.h"
#include "plan/memory_plan.h"
#include "plan/prediction.h"
#include "plan/prediction_text.h"
#include "plan/prefetch_choice.h"
#include "plan/quantity_text.h"
#include "plan/text.h"
#include "platform/counted_text.h"
#include "platform/files.h"
#include "platform/status_macros.h"
#include "schedules/simulate/device_profile.h"
#include "schedules/simulate/trace.h"

namespace tandem::cli {
namespace {

// Chooses the kind of device that the profile describes for a job that may run on any: the scratch memory
// depends on it.
v1::JobSpec OnDeviceOf(const schedules::DeviceProfile& profile, v1::JobSpec resolved) {
  if (resolved.resources().device() == v1::DEVICE_AUTO) {
    const bool processors = profile.cores > 0;
    resolved.mutable_resources()->set_device(processors ? v1::DEVICE_CPU : v1::DEVICE_CUDA);
  }
  return resolved;
}

// Makes a failure to plan a job by the given profile a usage error.
template <typename T>
absl::StatusOr<T> AsUsage(absl::StatusOr<T> planned) {
  return planned.ok() ? std::move(planned) : absl::InvalidArgumentError(planned.status().message());
}

// Chooses a prefetch distance, and sets it, if the job leaves it open.
absl::StatusOr<std::optional<plan::PrefetchChoice>> SetPrefetch(const schedules::DeviceProfile& profile,
                                                                v1::JobSpec& resolved) {
  if (!plan::ChoosesPrefetch(resolved)) {
    return std::nullopt;
  }
  TANDEM_ASSIGN_OR_RETURN(plan::PrefetchChoice choice, AsUsage(plan::ChoosePrefetch(resolved, profile)));
  resolved.mutable_parallelism()->mutable_fsdp()->set_prefetch(choice.distance);
  return choice;
}

using google::protobuf::util::MessageDifferencer;

constexpr int kPipedColumns = 100;
constexpr int64_t kMostProfileBytes = int64_t{64} << 20;

// Announces, on a terminal, that a step will take long to build, check and simulate.
void SayWhatTakesLong(Context& context, const v1::JobSpec& resolved) {
  const int64_t passes = jobspec::NodePasses(resolved);
  if (passes > jobspec::kMostSimulated && context.console.IsTerminal(Stream::kErr)) {
    Note(
        context.console,
        absl::StrCat("plan: building, checking and simulating a step of about ", passes,
                     " forwards of nodes (layers × microbatches of a rank); this may take minutes: a smaller "
                     "training.global_batch_size with --set is faster"));
  }
}

// Loads a preset by its name, otherwise a file.
absl::StatusOr<schedules::DeviceProfile> LoadProfile(const std::string& profile) {
  absl::StatusOr<schedules::DeviceProfile> preset = schedules::PresetProfile(profile);
  if (preset.ok()) {
    return preset;
  }
  const absl::StatusOr<std::string> text =
      platform::ReadAtMost(platform::SystemFiles(), profile, kMostProfileBytes);
  if (!text.ok()) {
    return absl::InvalidArgumentError(
        absl::StrCat("it is neither a preset (", absl::StrJoin(schedules::PresetProfileNames(), ", "),
                     ") nor a file that can be read: ", text.status().message()));
  }
  return schedules::ProfileFromJson(*text);
}

struct Compared {
  std::string value;
  bool current = false;  // the value in the file
  plan::Prediction prediction;
  int64_t tokens = 0;  // of a step
};

// All results of the command.
struct Result {
  plan::JobPlan plan;
  schedules::DeviceProfile profile;
  plan::Prediction prediction;
  plan::Advice advice;
  std::optional<plan::PrefetchChoice> prefetch;  // if the job leaves it open
  Comparison comparison;
  std::vector<Compared> compared;             // empty without --compare
  std::optional<plan::GraphSegments> graphs;  // if the job uses graphs
  plan::GraphCosts graph_costs;
};

std::string Trace(const Result& result) {
  return schedules::TraceToJson(result.plan.outline, {{.program = &result.plan.stage.train,
                                                       .timeline = &result.prediction.simulation.timeline,
                                                       .memory = &result.prediction.memory_curve}});
}

std::string Render(const std::vector<StyledLine>& lines, const Context& context, int columns) {
  const Console& console = context.console;
  const bool color = console.color() && console.IsTerminal(Stream::kOut);
  std::string text;
  for (const StyledLine& line : lines) {
    std::string rendered = line.Render(columns, color, console.unicode());
    absl::StripTrailingAsciiWhitespace(&rendered);
    absl::StrAppend(&text, rendered, "\n");
  }
  return text;
}

std::string ComparisonTable(const Result& result, const Context& context) {
  Table table({result.comparison.path, Right("STEP"), Right("CHANGE"), Right("TOKENS/S"), Right("EXPOSED"),
               Right("MEMORY"), ""});
  // Relative to the job as it is, by token, so that batches of different sizes compare.
  const double base = result.prediction.tokens_per_second;
  for (const Compared& row : result.compared) {
    const double change = 100 * (base / row.prediction.tokens_per_second - 1);
    const bool fits =
        result.profile.memory_bytes == 0 || row.prediction.device_bytes() <= result.profile.memory_bytes;
    table.Add({row.value, plan::DurationText(row.prediction.step_ns),
               row.current ? "" : absl::StrFormat("%+.1f %%", change),
               RateText(row.prediction.tokens_per_second), plan::DurationText(row.prediction.exposed_ns),
               plan::SizeText(row.prediction.memory.arena_bytes),
               absl::StrCat(row.current ? "as it is" : "", row.current && !fits ? ", " : "",
                            fits ? "" : "does not fit")});
  }
  return context.Rendered(table);
}

// "  the host issues them in 150 us a step instead of 4.90 ms; graphs take 4.00 MiB of …"; empty if the
// profile has no such costs.
std::string GraphCostsText(const plan::GraphCosts& costs) {
  const bool knows_time = costs.passes_issue_ns > 0 && costs.graphs_issue_ns > 0;
  std::vector<std::string> parts;
  if (knows_time) {
    parts.push_back(absl::StrCat("the host issues them in ", plan::DurationText(costs.graphs_issue_ns),
                                 " a step instead of ", plan::DurationText(costs.passes_issue_ns)));
  }
  if (costs.device_bytes > 0) {
    parts.push_back(
        absl::StrCat("graphs take ", plan::SizeText(costs.device_bytes), " of the device beside the arena"));
  }
  return parts.empty() ? "" : absl::StrCat("  ", absl::StrJoin(parts, "; "), "\n");
}

std::string GraphsTable(const plan::GraphSegments& graphs, const plan::GraphCosts& costs,
                        const Context& context) {
  Table table({Shrinking("PASSES OF A SEGMENT"), Right("A STEP")});
  int segments = 0;
  for (const plan::GraphSegments::Row& row : graphs.rows) {
    table.Add({row.passes, absl::StrCat(row.segments)});
    segments += row.segments;
  }
  const int64_t more = graphs.more_arena_bytes;
  return absl::StrCat(
      context.Rendered(table), "  ", graphs.passes_in_graphs, " of ", graphs.passes,
      " passes of nodes are replayed: ", platform::CountedText(segments, "segment"), ", ",
      platform::CountedText(graphs.graphs, "graph"), ", each is used again after ", graphs.period,
      graphs.period == 1 ? " microbatch; " : " microbatches; ", graphs.copies,
      " copies from and to rings\n  the arena is ",
      more == 0 ? "as large as"
                : absl::StrCat(plan::SizeText(std::abs(more)), more < 0 ? " smaller than" : " larger than"),
      " without graphs\n", GraphCostsText(costs));
}

std::string Text(const Result& result, const Context& context, const PlanOptions& options) {
  const int width = context.TableWidth();
  const int columns = width > 0 ? width : kPipedColumns;
  const bool unicode = context.console.unicode();
  std::string text;
  if (!result.compared.empty()) {  // what was asked for comes first
    text =
        absl::StrCat("Compared (change of the time a token takes)\n", ComparisonTable(result, context), "\n");
  }
  text += plan::PlanToText(result.plan, {.program = options.program});
  if (result.prefetch.has_value()) {
    absl::StrAppend(&text, "\nUnits gathered ahead of use (prefetch: auto)\n");
    for (const std::string& line : Wrap(plan::PrefetchChoiceToText(*result.prefetch), columns, "  ")) {
      absl::StrAppend(&text, line, "\n");
    }
  }
  if (result.graphs.has_value()) {
    absl::StrAppend(&text, "\nGraphs of ", absl::StrJoin(result.plan.train.replayed, ", "), "\n",
                    GraphsTable(*result.graphs, result.graph_costs, context));
  }
  absl::StrAppend(
      &text, "\n", plan::PredictionToText(result.plan, result.prediction, result.profile), "\n",
      Render(TimelineChart(result.plan.stage.train, result.prediction.simulation.timeline, columns, unicode),
             context, columns),
      "\nMemory of one rank over the step\n",
      Render(MemoryChart(result.prediction.memory_curve, result.prediction.memory.arena_bytes,
                         result.prediction.step_ns, columns, unicode),
             context, columns));
  text += "\nWhat limits this step, and what would help\n";
  for (const std::string& sentence : result.advice.sentences) {
    for (const std::string& line : Wrap(sentence, columns, "  ")) {
      absl::StrAppend(&text, line, "\n");
    }
  }
  return text;
}

std::string PlanJson(const Result& result) {
  nlohmann::json json = plan::PlanToJson(result.plan);
  json["prediction"] = plan::PredictionToJson(result.plan, result.prediction, result.profile);
  json["advice"] = plan::AdviceToJson(result.advice);
  if (result.prefetch.has_value()) {
    json["prefetch"] = plan::PrefetchChoiceToJson(*result.prefetch);
  }
  if (result.graphs.has_value()) {
    json["graphs"] = plan::GraphSegmentsToJson(*result.graphs, result.graph_costs);
  }
  if (!result.compared.empty()) {
    nlohmann::json rows = nlohmann::json::array();
    for (const Compared& row : result.compared) {
      rows.push_back(
          {{"value", row.value},
           {"current", row.current},
           {"tokens", row.tokens},
           {"step_seconds", static_cast<double>(row.prediction.step_ns) * 1e-9},
           {"tokens_per_second", row.prediction.tokens_per_second},
           {"exposed_seconds", static_cast<double>(row.prediction.exposed_ns) * 1e-9},
           {"arena_bytes", row.prediction.memory.arena_bytes},
           {"memory_waits_cost_seconds", static_cast<double>(row.prediction.memory_waits.cost_ns) * 1e-9}});
    }
    json["comparison"] = {{"path", result.comparison.path}, {"rows", rows}};
  }
  return json.dump(2) + "\n";
}

// Plans every variant.
absl::Status Compare(Context& context, const v1::JobSpec& spec, const v1::JobSpec& resolved, Result& result) {
  std::string refused;
  for (const std::string& value : result.comparison.values) {
    const Variant variant = MakeVariant(spec, result.comparison.path, value);
    for (const v1::Violation& violation : variant.violations) {
      absl::StrAppend(&refused, "--compare: ", jobspec::ToText(violation), "\n");
    }
    if (!variant.violations.empty()) {
      continue;
    }
    v1::JobSpec planned = OnDeviceOf(result.profile, variant.resolved);
    TANDEM_RETURN_IF_ERROR(SetPrefetch(result.profile, planned).status());
    const plan::JobPlan job_plan = plan::MakeJobPlan(planned);
    TANDEM_ASSIGN_OR_RETURN(plan::Prediction prediction, AsUsage(plan::Predict(job_plan, result.profile)));
    result.compared.push_back({.value = value,
                               .current = MessageDifferencer::Equals(variant.resolved, resolved),
                               .prediction = std::move(prediction),
                               .tokens = plan::TokensPerStep(job_plan)});
  }
  if (!refused.empty()) {
    context.console.Write(Stream::kErr, refused);
    return Failure(kInvalidSpec, "");
  }
  return absl::OkStatus();
}

}  // namespace

Outcome Plan(Context& context, const PlanOptions& options) {
  Result result;
  absl::StatusOr<schedules::DeviceProfile> profile = LoadProfile(options.profile);
  if (!profile.ok()) {
    return absl::InvalidArgumentError(
        absl::StrCat("--profile ", Escape(options.profile), ": ", profile.status().message()));
  }
  result.profile = *std::move(profile);
  if (options.compare.has_value()) {
    absl::StatusOr<Comparison> comparison = ParseComparison(*options.compare);
    if (!comparison.ok()) {
      return absl::InvalidArgumentError(absl::StrCat("--compare: ", comparison.status().message()));
    }
    result.comparison = *std::move(comparison);
  }
  // A plan needs no data, wherever it is.
  TANDEM_ASSIGN_OR_RETURN(const JobFile job, LoadJobFile(context, options, std::nullopt));
  SayWhatTakesLong(context, job.resolved);
  try {
    v1::JobSpec resolved = OnDeviceOf(result.profile, job.resolved);
    TANDEM_ASSIGN_OR_RETURN(result.prefetch, SetPrefetch(result.profile, resolved));
    result.plan = plan::MakeJobPlan(resolved);
    if (!result.plan.train.replayed.empty()) {
      result.graphs = plan::GraphSegmentsOf(result.plan);
      result.graph_costs = plan::GraphCostsOf(result.plan, *result.graphs, result.profile);
    }
    TANDEM_ASSIGN_OR_RETURN(result.prediction, AsUsage(plan::Predict(result.plan, result.profile)));
    result.advice = plan::Advise(resolved, result.plan, result.prediction, result.profile);
    if (options.compare.has_value()) {
      TANDEM_RETURN_IF_ERROR(Compare(context, job.spec, job.resolved, result));
    }
  } catch (const std::exception& e) {  // the check refuses our own programs
    return absl::InternalError(e.what());
  }
  if (!options.trace.empty()) {
    const absl::Status written = platform::SystemFiles().Write(options.trace, Trace(result));
    if (!written.ok()) {
      return Failure(kFailed, absl::StrCat("plan: --trace: ", written.message()));
    }
    Note(context.console,
         absl::StrCat("the trace is in ", Escape(options.trace), "; open it at ui.perfetto.dev"));
  }
  context.Print(options.format == Format::kJson ? PlanJson(result) : Text(result, context, options));
  return kOk;
}

}  // namespace tandem::cli
