// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "link/shared_page.h"
#include "trainer/rank.h"
#include "trainer/requests.h"
#include "trainer/run_sequence.h"
#include "trainer/step_reports.h"
#include "trainer/training_state.h"

namespace tandem::trainer {

// Coordinates the saves of one rank with its runs, its reports and the requests for checkpoints.
// TrainingState writes the checkpoints. Used by the rank's thread. All ranks must make the same calls between
// the same two decisions of the sequence. Throws as TrainingState and StepReports do.
class RankSaves {
 public:
  // If has_directory is false, the job has no checkpoint directory: nothing is saved, and requests are
  // answered with that reason. All arguments must outlive this object. TrainingState::EndSaves must be called
  // before it is destroyed, because the thread that saves calls back into it.
  RankSaves(bool has_directory, TrainingState& state, RunSequence& sequence, StepReports& reports,
            RequestBox& requests, link::SharedPage& page, const SendToWorker& send);
  RankSaves(const RankSaves&) = delete;
  RankSaves& operator=(const RankSaves&) = delete;

  // Saves the state after the last applied step. No run may be in flight. `saving` has everything except the
  // pending report and the stall. Passes the outcome to the sequence.
  void Save(TrainingState::Saving saving);

  // Must be called before a run of train_save, which copies the state after `step`: waits for the previous
  // save, which reads what that run overwrites.
  void MakeWay(int64_t step);
  // How long the last MakeWay waited, in seconds.
  double wait_seconds() const { return wait_seconds_; }
  // Begins to write what that run has copied. The run must have ended, and its step must be submitted to the
  // reports; first waits until that step is in metrics.jsonl. `saving` has everything except the stall.
  void Begin(TrainingState::Saving saving);

  // Waits for the save in progress beside training. `step` is the step that is delayed. Returns false if the
  // save failed and its step must be saved again.
  bool End(int64_t step);

  // Answers the requests that the ranks have acted on with the outcome of the newest save, once that is done.
  // Returns false if the save failed and is tried again.
  bool AnswerRequests();
  // Answers the requests that asked the job to stop.
  void AnswerStopped() { Answer(requests_.Finish(), ""); }
  // Must be called when the job is done. Answers every request, also those that the ranks have not acted on.
  void AnswerAll();

 private:
  // Called on the rank's thread, or on the thread that saves.
  void Answer(const std::vector<uint64_t>& ids, const std::string& error) const;
  void AnswerWhenSaved(std::vector<uint64_t> ids);
  void SetPhase(v1::RankPhase phase) { page_.phase.store(phase, std::memory_order_relaxed); }

  const bool has_directory_;
  TrainingState& state_;
  RunSequence& sequence_;
  StepReports& reports_;
  RequestBox& requests_;
  link::SharedPage& page_;
  const SendToWorker& send_;

  std::string error_;  // error of the newest save that training waited for; empty: it succeeded
  // Whether the newest Save began a save beside training for requests.
  bool asked_beside_ = false;
  // How long the last MakeWay waited.
  double wait_seconds_ = 0;
  std::optional<std::vector<uint64_t>> answers_;  // the requests that the save after the current run answers
};

}  // namespace tandem::trainer
