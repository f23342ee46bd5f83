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

// The losses of a job in bounded memory: when full, neighbours are averaged, so the whole course stays
// visible.
class LossHistory {
 public:
  void Add(double loss);
  bool empty() const { return points_.empty() && pending_count_ == 0; }

  // The course as `width` columns of eight heights; shorter while there are fewer losses. Losses that are not
  // finite show as '!'.
  std::string Sparkline(int width, bool unicode) const;

 private:
  static constexpr size_t kCapacity = 512;

  std::vector<double> points_;  // each the mean of per_point_ losses
  int per_point_ = 1;
  double pending_sum_ = 0;
  int pending_count_ = 0;
};

// One validation: the loss over the held-out text, as of the end of a step (0: before the first).
struct Validation {
  int64_t step = 0;
  double loss = 0;
  std::map<std::string, double> texts;  // the loss of each text that has a name
};

// The losses of a report's named validation texts, by name.
std::map<std::string, double> ValidationTexts(const v1::StepReport& report);

// "de 2.5012, en 2.1034"; the first few, and how many there are beside. Empty if there is none.
std::string ValidationTextsText(const std::map<std::string, double>& texts);

// All that is known of one job that is being watched. Plain data: Apply changes it, renderings read it.
struct WatchState {
  v1::Job job;         // the newest revision
  bool known = false;  // `job` has been received
  std::string cursor;

  std::optional<v1::StepReport> last;  // of the highest (attempt, step); without norms
  std::optional<Validation> first_validation;
  std::optional<Validation> validation;  // the newest
  LossHistory losses;
  int64_t reports = 0;  // steps received, each once
  int64_t tokens = 0;   // their sum
  double seconds = 0;   // their sum

  // The newest steps, for rates; arrivals only of reports that were received live.
  struct Recent {
    int64_t tokens = 0;
    double seconds = 0;
  };
  std::deque<Recent> recent;
  struct Arrival {
    absl::Time time;
    int64_t step = 0;
  };
  std::deque<Arrival> arrivals;

  v1::ParameterTable table;
  v1::Norms norms;  // empty until a report brought them
  int64_t norms_step = 0;

  std::optional<v1::CheckpointCommitted> checkpoint;  // the newest
  v1::Event warning;                                  // the newest about a checkpoint, or the training

  // Set while the ranks do not move, and reported once more when they do.
  struct Standstill {
    absl::Time since;  // when the rank that is behind last moved
    v1::Progress progress;
  };
  std::optional<Standstill> standstill;

  bool ends_with_controller = false;  // as under `tandem up` and `run`, which end their workers too
  std::string notice;                 // a further line of the display: "cancelling; Ctrl-C again kills it"

  // Set while the controller is away.
  struct Lost {
    absl::Time since;
    std::string why;
  };
  std::optional<Lost> lost;
};

// What a response changed; all false if it brought nothing new (a repeat after a reconnection).
struct Applied {
  bool job = false;     // its state, reason or message
  bool report = false;  // a new last step
  bool validation = false;
  bool checkpoint = false;
  bool stalled = false;  // the ranks have come to stand still, or move again
  bool warning = false;
};

// `live`: the response is shown as it happens, not read from the history.
Applied Apply(const v1::WatchResponse& response, absl::Time now, bool live, WatchState& state);
Applied ApplyReport(const v1::StepReport& report, absl::Time now, bool live, WatchState& state);

// Applies only the validation of the report, if it has one.
Applied ApplyValidation(const v1::StepReport& report, WatchState& state);

// Whether the ranks have stood still for longer than a step explains.
bool IsStalled(const WatchState& state);

// What happens while the controller is away: "training goes on; reconnecting".
std::string WhileAway(const WatchState& state);

// Steps that the job will make; 0 if unknown.
int64_t TotalSteps(const WatchState& state);

// How many steps changed no weight: "3 of 134 steps skipped (2.2 %)"; empty if all did.
std::string SkippedText(const WatchState& state);

// Rates over the newest steps; 0 if nothing was measured.
double TokensPerSecond(const WatchState& state);
double SecondsPerStep(const WatchState& state);

// The rate over all steps received.
double AverageTokensPerSecond(const WatchState& state);

// Time to the last step at the pace of the newest ones, waits between steps (validation, checkpoints)
// included; nullopt if the pace or the end is not known.
std::optional<absl::Duration> TimeLeft(const WatchState& state, absl::Time now);

// The rows of `norms` with the largest update/weight, largest first; indices into table.parameters.
std::vector<int> LargestUpdates(const v1::Norms& norms, int count);

// update[i] / weight[i]; 0 if the weight is 0 or a list is short.
double UpdateRatio(const v1::Norms& norms, int i);

}  // namespace tandem::cli
