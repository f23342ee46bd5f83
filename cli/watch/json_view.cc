// SPDX-License-Identifier: Apache-2.0

#include <map>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "cli/terminal/message_text.h"
#include "cli/watch/watch_frame.h"
#include "cli/watch/watch_view.h"
#include "nlohmann/json.hpp"

namespace tandem::cli {

using Json = nlohmann::ordered_json;

std::string ReportJson(const v1::StepReport& report, const std::string& kind) {
  Json json = Json::object();
  if (!kind.empty()) {
    json["kind"] = kind;
  }
  json.update({{"step", report.step()},
               {"loss", report.loss()},
               {"grad_norm", report.grad_norm()},
               {"learning_rate", report.learning_rate()},
               {"tokens", report.tokens()},
               {"seconds", report.seconds()}});
  if (report.nonfinite() > 0) {
    json["nonfinite"] = report.nonfinite();
  }
  if (report.attempt() > 1) {
    json["attempt"] = report.attempt();
  }
  // Sorted, because a map of protobuf has no order.
  const std::map<std::string, double> scalars(report.scalars().begin(), report.scalars().end());
  for (const auto& [name, value] : scalars) {
    json[name] = value;
  }
  return json.dump(-1, ' ', false, Json::error_handler_t::replace);
}

namespace {

class JsonView : public WatchView {
 public:
  explicit JsonView(Console& console) : console_(console) {}

  void Show(const WatchState& state, const Applied& applied, absl::Time) override {
    if (applied.connection) {
      Print({{"kind", "connection"}, {"connected", !state.lost.has_value()}});
    }
    if (applied.job) {
      PrintJob("job", state);
    }
    if (applied.report) {
      console_.Write(Stream::kOut, absl::StrCat(ReportJson(*state.last, "report"), "\n"));
    } else if (applied.validation) {
      Json json = {{"kind", "validation"},
                   {"step", state.validation->step},
                   {"validation_loss", state.validation->loss}};
      for (const auto& [name, loss] : state.validation->texts) {
        json[absl::StrCat("validation_loss/", name)] = loss;
      }
      Print(json);
    }
    if (applied.stalled) {
      const bool stalled = IsStalled(state);
      Json json = {{"kind", "progress"}, {"stalled", stalled}};
      if (stalled) {
        json.update(Json::parse(ToJson(state.standstill->progress, -1)));
      }
      Print(json);
    }
    if (applied.checkpoint) {
      Print({{"kind", "checkpoint"}, {"step", state.checkpoint->step()}, {"path", state.checkpoint->path()}});
    }
    if (applied.warning) {
      Print({{"kind", "warning"},
             {"reason", state.warning.reason()},
             {"step", state.warning.step()},
             {"path", state.warning.checkpoint_warning().path()},
             {"message", state.warning.message()}});
    }
  }

  void Finish(const WatchState& state, absl::Time) override {
    if (state.known && HasEnded(state.job.state())) {
      PrintJob("end", state);
    }
  }

  // Lines of a log are not JSON objects; `tandem logs` prints them.
  void ShowLog(int, const std::vector<std::string>&) override {}

 private:
  void PrintJob(const std::string& kind, const WatchState& state) {
    const v1::Job& job = state.job;
    Json json = {{"kind", kind},           {"id", job.id()},
                 {"name", job.name()},     {"state", StateText(job.state())},
                 {"reason", job.reason()}, {"message", job.message()}};
    if (kind == "end") {
      json["steps"] = state.last.has_value() ? state.last->step() : job.last_step();
      if (state.last.has_value()) {
        json["loss"] = state.last->loss();
        json["tokens_per_second"] = AverageTokensPerSecond(state);
      }
      if (state.validation.has_value()) {
        json["validation_loss"] = state.validation->loss;
      }
      json["run_seconds"] = absl::ToDoubleSeconds(RunTime(job));
      if (job.has_cause()) {
        json["cause"] = Json::parse(ToJson(job.cause(), -1));
      }
    }
    Print(json);
  }

  void Print(const Json& json) {
    console_.Write(Stream::kOut,
                   absl::StrCat(json.dump(-1, ' ', false, Json::error_handler_t::replace), "\n"));
  }

  Console& console_;
};

}  // namespace

std::unique_ptr<WatchView> MakeJsonView(Console& console) { return std::make_unique<JsonView>(console); }

}  // namespace tandem::cli
