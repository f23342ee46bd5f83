// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "trainer/rank.h"

namespace tandem::trainer {

class Outbox;

// Sends what a rank reports to the worker daemon, over the socket. Called on the rank's and the reporter's
// threads.
class DaemonObserver final : public RankObserver {
 public:
  // `outbox` outlives it.
  DaemonObserver(Outbox& outbox, int attempt, std::string table_digest);

  void OnReady(const RankReady& ready) override;
  void OnParameters(const std::vector<plan::TrainedParameter>& parameters) override;
  void OnReport(const v1::StepReport& report) override;
  void OnCheckpoint(int64_t step, const checkpoint::Saved& saved) override;
  void OnCheckpointWarning(const v1::CheckpointWarning& warning) override;
  void OnNonfinite(int64_t step, const std::string& message) override;
  void OnProfiledStep(uint64_t id, const RecordedRun& recorded, bool last) override;
  void OnRequestsDone(const std::vector<uint64_t>& ids, const std::string& error) override;

 private:
  Outbox& outbox_;
  const int attempt_;
  const std::string table_digest_;
};

}  // namespace tandem::trainer
