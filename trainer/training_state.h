// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <exception>
#include <functional>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "checkpoint/checkpoint.h"
#include "checkpoint/data_segment.h"
#include "checkpoint/job_folder.h"
#include "checkpoint/lease.h"
#include "checkpoint/owner.h"
#include "checkpoint/parameter_arrays.h"
#include "checkpoint/shard_copies.h"
#include "checkpoint/whole_steps.h"
#include "comm/communicator.h"
#include "data/loader.h"
#include "device/device.h"
#include "fsdp/unit_shard.h"
#include "plan/job_plan.h"
#include "platform/files.h"
#include "tandem/v1/state.pb.h"
#include "trainer/canaries.h"
#include "trainer/host_room.h"
#include "trainer/rank.h"
#include "trainer/save_thread.h"
#include "trainer/stage_memory.h"
#include "trainer/start_weights.h"

namespace tandem::trainer {

class Backend;

// What one rank trains: its shards of weights and moments, and its routers' states, in the memory of its
// programs. Begins as the job's seed or a checkpoint says, and is saved to checkpoints. Used by the rank's
// thread, while no run is in flight unless said otherwise.
class TrainingState {
 public:
  // text: what is trained on, used only by the constructor. Everything else outlives this. Throws
  // device::OutOfMemory.
  TrainingState(const plan::JobPlan& plan, const RankConfig& config, RankCommunicators communicators,
                platform::Files& files, Backend& backend, const data::Loader& text, SendToWorker send);

  struct Start {
    int64_t step = 0;                         // that is done
    int64_t skipped = 0;                      // of the steps up to it
    std::vector<checkpoint::StepNorm> norms;  // as in checkpoint::Info
    bool is_own = false;                      // the checkpoint is one of this job
    std::string pending_report;               // as in checkpoint::Info
    v1::StartedFrom from;
    checkpoint::DataSegment data;  // that the job reads on; its first step is the one after from_step
  };

  // Collective: initial weights, or those of a checkpoint, which are then published to the programs. Holds
  // the lease of the checkpoint directory in `lease`, where there is one; `lost` is called when the directory
  // gets another owner, on the lease's thread or the one that saves, and `moved` on this one whenever the
  // ranks have read another part of a checkpoint, or looked at another one. Throws UserError,
  // CheckpointError, CommError.
  Start Load(checkpoint::HeldLease& lease, const std::function<void(std::exception_ptr)>& lost,
             const std::function<void()>& moved);

  // A checkpoint of the state after a step.
  struct Saving {
    int64_t step = 0;
    int64_t skipped = 0;                      // of the steps up to it
    std::vector<checkpoint::StepNorm> norms;  // as in checkpoint::Info
    std::string pending_report;               // rank 0's of `step`, where its validation is still to come
    std::vector<int64_t> taken;               // windows of each training text by then
    // Seconds for which training stood still; none: as long as the save takes.
    std::optional<double> stall = std::nullopt;
  };

  // Collective. A save that fails while there are more to come is reported, and training goes on: a full disk
  // may be emptied, and the checkpoint before this one is still there. Returns the error; empty: none. Throws
  // it where this was the last (is_final), and DirectoryLost. No other save is in progress.
  std::string Save(const Saving& saving, bool is_final);

  // Whether saves that are not the last are written beside training: the same on all ranks, after Load.
  bool saves_beside() const { return thread_ != nullptr; }
  // Reports on rank 0 why they are not, if that is for want of memory. Ready comes first.
  void WarnOfStandstills() const;
  // Copies the state to the host, where BeginSave finds it. No run is in flight, and no save in progress.
  void CopyState() { copies_->Copy(); }
  // Collective, as Save where it is not the last, of what CopyState or a run of train_save has copied: a
  // thread writes it, and sends what there is to say of it. What Save would throw is what AwaitSave throws,
  // and goes to `lost` of Load. Until it has ended nothing may copy the state again.
  void BeginSave(const Saving& saving);
  // As SaveThread's. A wait of 10 s, and each that is twice the longest before it, is reported with `step`,
  // which waits.
  SaveThread::Ended AwaitSave(int64_t step);
  // Waits for the save in progress, as SaveThread's destructor does. The last call.
  void EndSaves() { thread_.reset(); }
  void WhenSaved(SaveThread::OnSaved then) { thread_->WhenSaved(std::move(then)); }

  // After a run of that step; the run behind it may be in flight, and may have written them. Throws
  // InstructionError where the job asks for canaries and one is gone.
  void CheckCanaries(int64_t step) const;

  const checkpoint::Owner& self() const { return self_; }  // of the checkpoint directory, where there is one
  const std::vector<fsdp::UnitShard>& units() const { return units_; }
  const std::vector<fsdp::StateMemory>& states() const { return states_; }
  const StageMemory& memory() const { return memory_; }

 private:
  void Initialize();
  void StartFrom(const StartWeights& start, const std::function<void()>& moved);
  // weights: the folder that the field names; empty: none.
  void ReplaceSource(const std::string& field, const std::string& weights);
  void ReplaceSourceOfOther(const std::string& step);
  void Resume(const checkpoint::Found& start, const std::function<void()>& moved);
  void PrepareSaves(std::function<void(std::exception_ptr)> failed);
  // Of `shards`, which are the state after the step.
  std::string Write(comm::Communicator& comm, const Saving& saving,
                    const std::vector<checkpoint::Shard>& shards, bool is_final);
  void Send(const v1::CheckpointWarning& warning) const;
  void Send(const checkpoint::Saved& saved, const Saving& saving) const;
  // Reports a problem of the save of that step.
  void Warn(v1::CheckpointProblem problem, int64_t step, const std::string& message) const;

  const plan::JobPlan& plan_;
  const RankConfig& config_;
  comm::Communicator& report_;
  comm::Communicator* const save_;
  const checkpoint::Owner self_;
  platform::Files& files_;
  device::Device& device_;
  const checkpoint::DataSegment data_;  // what the job reads
  const std::string data_digest_;
  const std::string data_content_digest_;
  std::vector<checkpoint::DataSegment> segments_;  // once it is known where the job starts
  const SendToWorker send_;

  const std::vector<fsdp::UnitShard> units_;
  const SharedRoom saved_;  // what saves beside training are written from
  const StageMemory memory_;
  const std::vector<fsdp::StateMemory> states_;
  std::unique_ptr<const Canaries> canaries_;  // where the job asks for them
  const std::vector<checkpoint::WholeArray> updated_states_;
  checkpoint::ParameterArrays arrays_;
  std::set<std::string> not_removed_;         // of all saves: what was reported
  std::optional<checkpoint::Origin> origin_;  // of the weights
  checkpoint::JobFolder folder_;              // the checkpoint directory, as this rank sees it
  checkpoint::WholeSteps whole_;              // of the checkpoint directory; rank 0
  double longest_wait_ = 5;                   // seconds; of those that were reported, or half of the least
  // Null: saves are not written beside training. While one is in progress, its thread uses the copies and,
  // alone, not_removed_ and whole_.
  std::unique_ptr<checkpoint::ShardCopies> copies_;
  std::unique_ptr<SaveThread> thread_;  // the last: it uses the others
};

}  // namespace tandem::trainer
