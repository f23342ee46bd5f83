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
#include "checkpoint/info.h"
#include "checkpoint/job_folder.h"
#include "checkpoint/owner.h"
#include "checkpoint/parameter_arrays.h"
#include "checkpoint/shard.h"
#include "checkpoint/verify.h"
#include "comm/communicator.h"
#include "data/loader.h"
#include "device/device.h"
#include "fsdp/unit_shard.h"
#include "plan/job_plan.h"
#include "platform/files.h"
#include "tandem/v1/state.pb.h"
#include "trainer/canaries.h"
#include "trainer/exports.h"
#include "trainer/rank.h"
#include "trainer/save_thread.h"
#include "trainer/stage_memory.h"
#include "trainer/start_weights.h"

namespace tandem::trainer {

class Backend;

// The state that one rank trains, in the memory of its programs: its shards of weights and moments, and its
// routers' states. It begins as the job's seed or a checkpoint says, and is saved to checkpoints. Used by the
// rank's thread while no run is in flight, unless said otherwise.
class TrainingState {
 public:
  // `text` is what is trained on; only the constructor uses it. All other arguments outlive this object.
  // Throws device::OutOfMemory.
  TrainingState(const plan::JobPlan& plan, const RankConfig& config, RankCommunicators communicators,
                platform::Files& files, Backend& backend, const data::Loader& text, SendToWorker send);

  struct Start {
    int64_t step = 0;                         // the last step that is done
    int64_t skipped = 0;                      // number of skipped steps up to it
    std::vector<checkpoint::StepNorm> norms;  // as in checkpoint::Info
    bool is_own = false;                      // whether the checkpoint is one of this job
    std::string pending_report;               // as in checkpoint::Info
    v1::StartedFrom from;
    checkpoint::DataSegment data;  // what the job reads; its first step is the one after from_step
  };

  // Collective. Sets initial weights or loads those of a checkpoint, and publishes them to the programs. If
  // there is a checkpoint directory, holds its lease in `lease`. `lost` is called when the directory gets
  // another owner, on the lease's thread or the one that saves. `moved` is called on this thread whenever the
  // ranks have read another part of a checkpoint, or looked at another one. Throws UserError,
  // CheckpointError, CommError.
  Start Load(checkpoint::HeldLease& lease, const std::function<void(std::exception_ptr)>& lost,
             const std::function<void()>& moved);

  // The facts about a checkpoint of the state after a step.
  struct Saving {
    int64_t step = 0;
    int64_t skipped = 0;                      // number of skipped steps up to it
    std::vector<checkpoint::StepNorm> norms;  // as in checkpoint::Info
    std::string pending_report;               // rank 0's report of `step`, if its validation is still to come
    std::vector<int64_t> taken;               // windows taken of each training text by then
    // Seconds for which training stood still; unset: the time that the save takes.
    std::optional<double> stall = std::nullopt;
  };

  // Collective. Writes a checkpoint. If it fails and more saves will follow (not is_final), the failure is
  // reported, returned, and training continues: a full disk may be emptied, and the previous checkpoint still
  // exists. Returns the empty string on success. Throws the error if is_final, and DirectoryLost. No other
  // save may be in progress.
  std::string Save(const Saving& saving, bool is_final);

  // Whether saves other than the last are written beside training. All ranks agree on it after Load.
  bool saves_beside() const { return thread_ != nullptr; }
  // If they are not, and the reason is a lack of memory, reports it on rank 0. Must follow Ready.
  void WarnOfStandstills() const;
  // Copies the state to the host for BeginSave. No run may be in flight, and no save in progress.
  void CopyState() { copies_->Copy(); }
  // Collective. Does what Save does with is_final false, for what CopyState or a run of train_save has
  // copied: a thread writes it and sends what there is to report. AwaitSave and `lost` of Load get the
  // exceptions of Save. Until the save has ended, nothing may copy the state again.
  void BeginSave(const Saving& saving);
  // Waits as SaveThread::Await does. A wait of 10 s, and each wait twice as long as the longest before it, is
  // reported with `step`, which waits.
  SaveThread::Ended AwaitSave(int64_t step);
  // Waits for the save in progress, as SaveThread's destructor does. Must be the last call.
  void EndSaves() { thread_.reset(); }
  void WhenSaved(SaveThread::OnSaved then) { thread_->WhenSaved(std::move(then)); }

  // Whether no checkpoint is being exported or waits for it; if there is one, waits for `wait` first. True on
  // other ranks than 0.
  bool AwaitExports(absl::Duration wait) { return exports_ == nullptr || exports_->Await(wait); }
  // As Exports::End.
  void EndExports(const std::string& reason);

  // Must be called after a run of that step; the next run may be in flight and is then suspected as well.
  // Throws InstructionError if the job uses canaries and one has changed.
  void CheckCanaries(int64_t step) const;

  const checkpoint::Owner& self() const { return self_; }  // of the checkpoint directory, if there is one
  const std::vector<fsdp::UnitShard>& units() const { return units_; }
  const std::vector<fsdp::StateMemory>& states() const { return states_; }
  const StageMemory& memory() const { return memory_; }

 private:
  void Initialize();
  void StartFrom(const StartWeights& start, const std::function<void()>& moved);
  // `weights` is the folder that the field names, or empty.
  void ReplaceSource(const std::string& field, const std::string& weights);
  void ReplaceSourceOfOther(const std::string& step);
  void Resume(const checkpoint::Found& start, const std::function<void()>& moved);
  void PrepareSaves(std::function<void(std::exception_ptr)> failed);
  void SpareExports();
  // Writes a checkpoint of `shards`, which are the state after the step.
  std::string Write(comm::Communicator& comm, const Saving& saving,
                    const std::vector<checkpoint::Shard>& shards, bool is_final);
  void Send(const v1::CheckpointWarning& warning) const;
  void Send(const checkpoint::Saved& saved, const Saving& saving) const;
  // Reports a problem with the save of that step.
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
  std::vector<checkpoint::DataSegment> segments_;  // set once it is known where the job starts
  const SendToWorker send_;

  const std::vector<fsdp::UnitShard> units_;
  const SharedRoom saved_;  // memory from which saves beside training are written
  const StageMemory memory_;
  const std::vector<fsdp::StateMemory> states_;
  std::unique_ptr<const Canaries> canaries_;  // set if the job uses them
  const std::vector<checkpoint::WholeArray> updated_states_;
  checkpoint::ParameterArrays arrays_;
  std::set<std::string> not_removed_;         // what was reported, over all saves
  std::optional<checkpoint::Origin> origin_;  // where the weights came from
  checkpoint::JobFolder folder_;              // the checkpoint directory, as this rank sees it
  checkpoint::WholeSteps whole_;              // of the checkpoint directory; rank 0
  std::set<int64_t> spared_;                  // steps that are whole and not in whole_: they are exported
  std::unique_ptr<Exports> exports_;          // null if this rank exports nothing
  // In seconds: the longest wait that was reported, or half of the shortest that is reported.
  double longest_wait_ = 5;
  // Null if saves are not written beside training. While one is in progress, its thread uses the copies,
  // not_removed_, whole_ and spared_, and no other thread does.
  std::unique_ptr<checkpoint::ShardCopies> copies_;
  std::unique_ptr<SaveThread> thread_;  // must be last, because it uses the other members
};

}  // namespace tandem::trainer
