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
#include "trainer/stage_memory.h"
#include "trainer/start_weights.h"
#include "trainer/task_thread.h"

namespace tandem::trainer {

class Backend;

// The state that one rank trains, in the memory of its programs: its shards of weights and moments, and its
// routers' states. Load initializes it from the job's seed, a checkpoint or other weights; the saves write it
// to checkpoints. Used by the rank's thread while no run is in flight, unless said otherwise.
class TrainingState {
 public:
  // `text` is the training text, used only by the constructor. All other arguments must outlive this object.
  // Throws device::OutOfMemory.
  TrainingState(const plan::JobPlan& plan, const RankConfig& config, RankCommunicators communicators,
                platform::Files& files, Backend& backend, const data::Loader& text, SendToWorker send);

  struct Start {
    checkpoint::Info info;  // of the checkpoint; info.step is the last step that is done. Empty without one
    bool is_own = false;    // whether this job wrote the checkpoint
    v1::StartedFrom from;
    checkpoint::DataSegment data;  // what the job reads from the step after data.from_step on
  };

  // Collective. Sets initial weights or loads those of a checkpoint, and publishes them to the programs. If
  // there is a checkpoint directory, holds its lease in `lease`. Calls `lost` if the directory gets another
  // owner or a save beside training throws, on the lease's thread or the saving thread. Calls `moved` on this
  // thread whenever the ranks have read another part of a checkpoint, or examined another checkpoint. Throws
  // UserError, CheckpointError, CommError.
  Start Load(checkpoint::HeldLease& lease, const std::function<void(std::exception_ptr)>& lost,
             const std::function<void()>& moved);

  // The facts about a checkpoint of the state after a step.
  struct Saving {
    int64_t step = 0;
    int64_t skipped = 0;                      // number of skipped steps up to it
    std::vector<checkpoint::StepNorm> norms;  // as in checkpoint::Info
    std::string pending_report;               // rank 0's report of `step`, if its validation is still to come
    std::vector<int64_t> taken;               // windows taken of each training text up to `step`
    // Seconds for which training stood still; unset: the time that the save takes.
    std::optional<double> stall = std::nullopt;
  };

  // Collective. Writes a checkpoint. Returns the empty string on success. On failure reports the error and
  // returns it, so that training continues: the disk may have room later, and the previous checkpoint still
  // exists. Throws the error if is_final, and DirectoryLost always. No other save may be in progress.
  std::string Save(const Saving& saving, bool is_final);

  // Whether all saves except the final one are written beside training. After Load it is the same on all
  // ranks.
  bool saves_beside() const { return thread_ != nullptr; }
  // Rank 0 reports a warning if memory is too short for saves beside training. Must be called after Ready was
  // sent.
  void WarnOfStandstills() const;
  // Copies the state to the host for BeginSave. No run may be in flight, and no save in progress.
  void CopyState() { copies_->Copy(); }
  // Collective. Begins a save of the state that CopyState or a run of train_save has copied. A thread writes
  // it as Save does if not is_final. An exception is passed to `lost` of Load, and AwaitSave throws it. Until
  // the save has ended, the state must not be copied again.
  void BeginSave(const Saving& saving);
  // Waits as TaskThread::Await does; `step` is the step that is delayed. Reports a wait of 10 s, and then
  // each wait that is twice as long as the longest reported so far.
  TaskThread::Ended AwaitSave(int64_t step);
  // Waits for the save in progress, as TaskThread's destructor does. Must be the last call.
  void EndSaves() { thread_.reset(); }
  void WhenSaved(TaskThread::OnDone then) { thread_->WhenDone(std::move(then)); }

  // Null if this rank exports nothing. Must be called after Load.
  Exports* exports() { return exports_.get(); }
  // Throws InstructionError with `step` if the job uses canaries and one has changed. Must be called after a
  // run of that step; if the next run is in flight, it may be the cause.
  void CheckCanaries(int64_t step) const;

  const checkpoint::Owner& self() const { return self_; }  // of the checkpoint directory, if there is one
  const std::vector<fsdp::UnitShard>& units() const { return units_; }
  const std::vector<fsdp::StateMemory>& states() const { return states_; }
  const StageMemory& memory() const { return memory_; }

 private:
  void Initialize();
  void StartFrom(const StartWeights& start, const std::function<void()>& moved);
  // `weights` is the folder in the spec's field `field`; both are empty if the job starts from its seed.
  void ReplaceSource(const std::string& field, const std::string& weights);
  void ReplaceSourceOfOther(const std::string& step);
  void Resume(const checkpoint::Found& start, const std::function<void()>& moved);
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
  std::set<std::string> not_removed_;         // problems that were reported, over all saves
  std::optional<checkpoint::Origin> origin_;  // where the weights came from
  checkpoint::JobFolder folder_;              // the checkpoint directory, as this rank sees it
  checkpoint::WholeSteps whole_;              // of the checkpoint directory; rank 0
  std::set<int64_t> spared_;  // whole checkpoints that were taken from whole_ because they are being exported
  std::unique_ptr<Exports> exports_;  // null if this rank exports nothing
  // In seconds: the longest wait that was reported. At first half of the shortest wait to report.
  double longest_wait_ = 5;
  // Null if saves are not written beside training. While one is in progress, its thread uses the copies,
  // not_removed_, whole_ and spared_, and no other thread does.
  std::unique_ptr<checkpoint::ShardCopies> copies_;
  std::unique_ptr<TaskThread> thread_;  // must be last, because it uses the other members
};

}  // namespace tandem::trainer
