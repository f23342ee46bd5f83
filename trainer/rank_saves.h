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

// Orders the saves of one rank between its runs: what a save waits for, what waits for it, and the requests
// that it answers. TrainingState writes the checkpoints. Used by the rank's thread; all ranks make the same
// calls between the same two decisions of the sequence. Throws as TrainingState and StepReports do.
class RankSaves {
 public:
  // If has_directory is false, the job has no checkpoint directory: nothing is saved, and requests are
  // answered with that reason. All arguments outlive this object. `state` calls back into it, so its saves
  // must be ended first (EndSaves).
  RankSaves(bool has_directory, TrainingState& state, RunSequence& sequence, StepReports& reports,
            RequestBox& requests, link::SharedPage& page, const SendToWorker& send);
  RankSaves(const RankSaves&) = delete;
  RankSaves& operator=(const RankSaves&) = delete;

  // Saves the state after the step of the sequence. No run may be in flight. `saving` is complete except for
  // the pending report and the stall. Tells the sequence whether the save succeeded.
  void Save(TrainingState::Saving saving);

  // Must be called before a run of train_save, which copies the state after `step`: waits for the previous
  // save, which reads what that run overwrites.
  void MakeWay(int64_t step);
  // How long the last MakeWay waited, in seconds.
  double wait_seconds() const { return wait_seconds_; }
  // Begins to write what that run has copied. The run must have ended and its step must be reported; the
  // checkpoint waits until the step is in metrics.jsonl. `saving` is complete except for the stall.
  void Begin(TrainingState::Saving saving);

  // Waits for the save beside training; `step` waits with it. Returns false if the save failed and its step
  // must be saved again.
  bool End(int64_t step);

  // Once the newest save is done, answers the requests that the ranks have acted on with its outcome. Returns
  // false if the save failed and is tried again.
  bool AnswerRequests();
  // Answers the requests that asked the job to stop.
  void AnswerStopped() { Answer(requests_.Finish(), ""); }
  // The job is done: answers every request, whether the ranks have acted on it or not.
  void AnswerAll();

 private:
  // Called on the rank's thread, or on the one that saves.
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
  // Whether a save beside training was begun for requests that wait for an answer.
  bool asked_beside_ = false;
  // The wait before the latest run of train_save.
  double wait_seconds_ = 0;
  std::optional<std::vector<uint64_t>> answers_;  // the requests that the save is for
};

}  // namespace tandem::trainer
