// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "tandem/v1/jobs.pb.h"

namespace tandem::cli {

// The losses of a job in bounded memory: when the memory is full, neighbouring losses are averaged, so that
// the whole curve stays visible.
class LossHistory {
 public:
  void Add(double loss);

  // Draws the curve with `width` columns of eight heights; fewer while there are fewer losses. Losses that
  // are not finite are drawn as '!'.
  std::string Sparkline(int width, bool unicode) const;

 private:
  static constexpr size_t kCapacity = 512;

  std::vector<double> points_;  // each the mean of per_point_ losses
  int per_point_ = 1;
  double pending_sum_ = 0;
  int pending_count_ = 0;
};

// The result of one validation: the loss over the held-out text after a step (0: before the first).
struct Validation {
  int64_t step = 0;
  double loss = 0;
  std::map<std::string, double> texts;  // losses of the named texts, by name
};

// Returns the losses of a report's named validation texts, by name.
std::map<std::string, double> ValidationTexts(const v1::StepReport& report);

// "de 2.5012, en 2.1034": the first eight, and how many more there are. Empty if there is none.
std::string ValidationTextsText(const std::map<std::string, double>& texts);

// All that is known of one job that is being watched. Plain data: Apply changes it, the views draw it.
struct WatchState {
  v1::Job job;         // the newest revision
  bool known = false;  // `job` has been received
  std::string cursor;

  std::optional<v1::StepReport> last;  // of the highest (attempt, step); without norms
  std::optional<Validation> first_validation;
  std::optional<Validation> validation;  // the newest
  LossHistory losses;
  int64_t reports = 0;  // steps received, each once
  int64_t tokens = 0;   // sum over these steps
  double seconds = 0;   // sum over these steps

  // The newest steps, for rates.
  struct Recent {
    int64_t tokens = 0;
    double seconds = 0;
  };
  std::deque<Recent> recent;
  struct Arrival {
    absl::Time time;
    int64_t step = 0;
  };
  std::deque<Arrival> arrivals;  // only of live reports

  v1::ParameterTable table;
  v1::Norms norms;  // empty until a report brought them
  int64_t norms_step = 0;

  std::optional<v1::CheckpointCommitted> checkpoint;  // the newest
  v1::Event warning;  // the newest warning, of a checkpoint or of the training

  // Set while the ranks stand still.
  struct Standstill {
    absl::Time since;  // when the rank that is behind last moved
    v1::Progress progress;
  };
  std::optional<Standstill> standstill;

  bool ends_with_controller = false;  // `tandem up` and `run` end their workers too
  std::string notice;                 // a line of the display: "cancelling; Ctrl-C again kills it"

  // Set while the controller is away.
  struct Lost {
    absl::Time since;
    std::string why;
  };
  std::optional<Lost> lost;
};

// What a response changed; all false if it brought nothing new, as when it is repeated after a reconnection.
struct Applied {
  bool job = false;     // its state, reason or message
  bool report = false;  // a new last step
  bool validation = false;
  bool checkpoint = false;
  bool stalled = false;  // whether the ranks stand still has changed
  bool warning = false;
  bool connection = false;  // the controller is away (WatchState::lost), or is back
};

// Applies a response to the state. live: it has just happened, and was not read from the history.
Applied Apply(const v1::WatchResponse& response, absl::Time now, bool live, WatchState& state);
Applied ApplyReport(const v1::StepReport& report, absl::Time now, bool live, WatchState& state);

// Applies only the validation of the report, if it has one.
Applied ApplyValidation(const v1::StepReport& report, WatchState& state);

// Whether the ranks have stood still for longer than a step takes.
bool IsStalled(const WatchState& state);

// What happens while the controller is away: "training goes on; reconnecting".
std::string WhileAway(const WatchState& state);

// Steps that the job will make; 0 if unknown.
int64_t TotalSteps(const WatchState& state);

// How many steps changed no weight: "3 of 134 steps skipped (2.2 %)"; empty if there is none.
std::string SkippedText(const WatchState& state);

// Return rates over the newest steps; 0 if nothing was measured.
double TokensPerSecond(const WatchState& state);
double SecondsPerStep(const WatchState& state);

// Returns the rate over all steps received.
double AverageTokensPerSecond(const WatchState& state);

// Returns the time to the last step at the pace of the newest steps, with their waits (validation,
// checkpoints); nullopt if the pace or the end is not known, or the ranks stand still.
std::optional<absl::Duration> TimeLeft(const WatchState& state, absl::Time now);

// Returns the parameters with the largest update/weight, largest first, as indices into table.parameters.
std::vector<int> LargestUpdates(const v1::Norms& norms, int count);

// update[i] / weight[i]; 0 if the weight is 0 or a list is short.
double UpdateRatio(const v1::Norms& norms, int i);

}  // namespace tandem::cli
