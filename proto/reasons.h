// SPDX-License-Identifier: Apache-2.0
#pragma once

// Every reason that the service gives: why a job or a rank ended, what a job waits for, why a worker accepts
// no ranks or is refused, and what an event is about. `tandem describe` shows the meaning of a reason, and
// docs/reasons.md, which the target update_reasons writes, lists them all. Reasons are part of the API: they
// are never renamed.

#include <array>
#include <cstdint>
#include <string_view>

namespace tandem::proto {

namespace reason {

inline constexpr char kAccepted[] = "Accepted";
inline constexpr char kBadAssignment[] = "BadAssignment";
inline constexpr char kBadInventory[] = "BadInventory";
inline constexpr char kBadWorkerId[] = "BadWorkerId";
inline constexpr char kBehindOthers[] = "BehindOthers";
inline constexpr char kBeyondCapacity[] = "BeyondCapacity";
inline constexpr char kBuildMismatch[] = "BuildMismatch";
inline constexpr char kCancelledByUser[] = "CancelledByUser";
inline constexpr char kCheckpointCommitted[] = "CheckpointCommitted";
inline constexpr char kCheckpointDirectoryInUse[] = "CheckpointDirectoryInUse";
inline constexpr char kCheckpointDirectoryLost[] = "CheckpointDirectoryLost";
inline constexpr char kCheckpointDone[] = "CheckpointDone";
inline constexpr char kCheckpointFailed[] = "CheckpointFailed";
inline constexpr char kCheckpointNotDone[] = "CheckpointNotDone";
inline constexpr char kCheckpointNotRemoved[] = "CheckpointNotRemoved";
inline constexpr char kCheckpointPassedOver[] = "CheckpointPassedOver";
inline constexpr char kCheckpointRequested[] = "CheckpointRequested";
inline constexpr char kCheckpointWarning[] = "CheckpointWarning";
inline constexpr char kClusterStopped[] = "ClusterStopped";
inline constexpr char kControllerLost[] = "ControllerLost";
inline constexpr char kDataAddressUnusable[] = "DataAddressUnusable";
inline constexpr char kDataPositionDiffers[] = "DataPositionDiffers";
inline constexpr char kDataRead[] = "DataRead";
inline constexpr char kDigestMismatch[] = "DigestMismatch";
inline constexpr char kDraining[] = "Draining";
inline constexpr char kExitedEarly[] = "ExitedEarly";
inline constexpr char kExitedWithoutFinishing[] = "ExitedWithoutFinishing";
inline constexpr char kFenced[] = "Fenced";
inline constexpr char kFinished[] = "Finished";
inline constexpr char kFinishing[] = "Finishing";
inline constexpr char kGradientSpike[] = "GradientSpike";
inline constexpr char kHelloMissing[] = "HelloMissing";
inline constexpr char kInternalError[] = "InternalError";
inline constexpr char kInvalidData[] = "InvalidData";
inline constexpr char kInvalidEnvironment[] = "InvalidEnvironment";
inline constexpr char kInvalidJob[] = "InvalidJob";
inline constexpr char kInvalidSpec[] = "InvalidSpec";
inline constexpr char kLinkLost[] = "LinkLost";
inline constexpr char kLossSpike[] = "LossSpike";
inline constexpr char kMixedBuilds[] = "MixedBuilds";
inline constexpr char kNoHealthySlots[] = "NoHealthySlots";
inline constexpr char kNoValidCheckpoint[] = "NoValidCheckpoint";
inline constexpr char kNoWorkers[] = "NoWorkers";
inline constexpr char kNonFinite[] = "NonFinite";
inline constexpr char kNonfiniteGradients[] = "NonfiniteGradients";
inline constexpr char kNotConnected[] = "NotConnected";
inline constexpr char kOldTerm[] = "OldTerm";
inline constexpr char kOutOfMemory[] = "OutOfMemory";
inline constexpr char kPathHangs[] = "PathHangs";
inline constexpr char kPeerLost[] = "PeerLost";
inline constexpr char kPlaced[] = "Placed";
inline constexpr char kPreempted[] = "Preempted";
inline constexpr char kProtocolMismatch[] = "ProtocolMismatch";
inline constexpr char kRankExited[] = "RankExited";
inline constexpr char kRankKilled[] = "RankKilled";
inline constexpr char kRankLost[] = "RankLost";
inline constexpr char kReady[] = "Ready";
inline constexpr char kResumedWithOtherData[] = "ResumedWithOtherData";
inline constexpr char kResumedWithOtherSeed[] = "ResumedWithOtherSeed";
inline constexpr char kResumedWithOtherTraining[] = "ResumedWithOtherTraining";
inline constexpr char kRunsUnknownJob[] = "RunsUnknownJob";
inline constexpr char kSpawnFailed[] = "SpawnFailed";
inline constexpr char kStartTimeout[] = "StartTimeout";
inline constexpr char kStartWeightsUnusable[] = "StartWeightsUnusable";
inline constexpr char kStopped[] = "Stopped";
inline constexpr char kStoppedByWorker[] = "StoppedByWorker";
inline constexpr char kStoppedUnasked[] = "StoppedUnasked";
inline constexpr char kStoppingLeftovers[] = "StoppingLeftovers";
inline constexpr char kStoreFailed[] = "StoreFailed";
inline constexpr char kSubmitted[] = "Submitted";
inline constexpr char kUserError[] = "UserError";
inline constexpr char kWaitingForSlots[] = "WaitingForSlots";
inline constexpr char kWithdrawn[] = "Withdrawn";
inline constexpr char kWorkerConnected[] = "WorkerConnected";
inline constexpr char kWorkerDisconnected[] = "WorkerDisconnected";
inline constexpr char kWorkerDisk[] = "WorkerDisk";
inline constexpr char kWorkerIdDenied[] = "WorkerIdDenied";
inline constexpr char kWorkerIdInUse[] = "WorkerIdInUse";
inline constexpr char kWorkerLeft[] = "WorkerLeft";
inline constexpr char kWorkerLimits[] = "WorkerLimits";
inline constexpr char kWorkerLost[] = "WorkerLost";
inline constexpr char kWorkerStopped[] = "WorkerStopped";
inline constexpr char kWorkersApart[] = "WorkersApart";

}  // namespace reason

enum class ReasonOf : uint8_t { kEnd, kWait, kWorker, kSession, kEvent };

struct Reason {
  const char* code;  // CamelCase
  ReasonOf of;
  const char* failure;  // class of failure, as the CLI shows it; empty unless kEnd
  const char* meaning;  // without a full stop
  const char* remedy;   // what to do

  // Whether a user need not do anything.
  constexpr bool IsOrdinary() const {
    return std::string_view(remedy) == "nothing" || std::string_view(remedy) == "wait";
  }
};

inline constexpr std::array kReasons = {
    Reason{reason::kBadAssignment, ReasonOf::kEnd, "infrastructure",
           "a worker was given ranks for slots that it does not have",
           "see the logs of the controller and the worker; run the same build on both"},
    Reason{reason::kBuildMismatch, ReasonOf::kEnd, "infrastructure",
           "ranks, or a rank and its worker, are of different builds", "run the same build on every machine"},
    Reason{reason::kCancelledByUser, ReasonOf::kEnd, "requested", "a user cancelled the job",
           "nothing; submit it again with --resume newest to go on"},
    Reason{reason::kCheckpointDirectoryInUse, ReasonOf::kEnd, "user",
           "another job that is alive saves into the same checkpoint.directory",
           "wait for that job, cancel it, or use another directory"},
    Reason{reason::kCheckpointDirectoryLost, ReasonOf::kEnd, "user",
           "another job has taken over checkpoint.directory",
           "look which of the two is wanted; give the other one a directory of its own"},
    Reason{
        reason::kCheckpointFailed, ReasonOf::kEnd, "infrastructure",
        "a checkpoint could not be saved or read; as an event, the job goes on with the one before",
        "make room, or mend the file system that the message names; then submit again with --resume newest"},
    Reason{reason::kClusterStopped, ReasonOf::kEnd, "requested",
           "`tandem up` was ended, which ends its running jobs",
           "start it again, and submit with --resume newest"},
    Reason{reason::kControllerLost, ReasonOf::kEnd, "infrastructure",
           "the ranks had heard of no controller for 0.8 of --orphan-timeout",
           "start the controller; submit again with --resume newest"},
    Reason{reason::kDataAddressUnusable, ReasonOf::kEnd, "infrastructure",
           "a rank cannot use the address at which others are to reach it",
           "start the worker with a --data-address of its machine"},
    Reason{reason::kDataPositionDiffers, ReasonOf::kEnd, "user",
           "a checkpoint says that other sequences of its texts were read than this build would have read",
           "go on from another checkpoint, or take its weights with checkpoint.start_from"},
    Reason{reason::kDigestMismatch, ReasonOf::kEnd, "infrastructure",
           "two ranks disagree on program, layout, kernels, text or the weights that they start from (the "
           "last two: class user)",
           "do what the message says: one build everywhere, or the same files on every worker"},
    Reason{reason::kExitedEarly, ReasonOf::kEnd, "infrastructure",
           "a rank exited with code 0 before the job was done", "read its log (`tandem logs`)"},
    Reason{reason::kExitedWithoutFinishing, ReasonOf::kEnd, "infrastructure",
           "a rank exited without saying why", "read its log (`tandem logs`)"},
    Reason{reason::kFenced, ReasonOf::kEnd, "infrastructure",
           "a rank ended itself because it had not heard from a controller for too long",
           "start the controller; submit again with --resume newest"},
    Reason{reason::kFinished, ReasonOf::kEnd, "", "every rank has done all steps", "nothing"},
    Reason{reason::kGradientSpike, ReasonOf::kEnd, "numeric",
           "the gradient norm of a step is far above those of the steps before it; as an event, training "
           "goes on, and "
           "with training.spikes: skip without the step's update",
           "look at the text of that step; lower the learning rate, warm up longer, or clip; `tandem norms` "
           "shows "
           "which parameter began"},
    Reason{reason::kInternalError, ReasonOf::kEnd, "infrastructure", "an error inside Tandem or a library",
           "read the message and the log of the rank; report it if it comes again"},
    Reason{reason::kInvalidData, ReasonOf::kEnd, "user",
           "the files of data.train or data.validation cannot be used", "mend what the message names"},
    Reason{reason::kInvalidEnvironment, ReasonOf::kEnd, "user",
           "an environment variable of the worker cannot be used",
           "unset it, or give it the value that the message allows"},
    Reason{reason::kInvalidJob, ReasonOf::kEnd, "user", "the job cannot run as it was asked for",
           "change the field that the message names"},
    Reason{reason::kInvalidSpec, ReasonOf::kEnd, "user",
           "a file or folder of the job does not fit on the worker that looked",
           "change what the message names, or mount it on every worker"},
    Reason{reason::kLinkLost, ReasonOf::kEnd, "infrastructure",
           "the connection between a rank and its worker broke", "read the logs of rank and worker"},
    Reason{reason::kNoValidCheckpoint, ReasonOf::kEnd, "user",
           "no checkpoint that the job could go on from verifies",
           "restore one, or use an empty directory; the message names what is damaged"},
    Reason{reason::kNonFinite, ReasonOf::kEnd, "numeric", "loss or gradients of a rank are not finite",
           "see NonfiniteGradients"},
    Reason{reason::kNonfiniteGradients, ReasonOf::kEnd, "numeric",
           "gradients are infinite or NaN; as an event, the step was skipped",
           "lower the learning rate, warm up longer, clip, or look at the text of that step; `tandem norms` "
           "shows which parameter began"},
    Reason{reason::kOutOfMemory, ReasonOf::kEnd, "out of memory",
           "a device, the machine or the container had no memory left for a rank",
           "`tandem plan` shows what needs how much: fewer sequences a microbatch, recompute, more ranks"},
    Reason{reason::kPathHangs, ReasonOf::kEnd, "infrastructure",
           "a path of the job does not answer on a worker", "mend the mount that the message names"},
    Reason{reason::kPeerLost, ReasonOf::kEnd, "peer lost",
           "a rank lost another one; the cause of that one is not known",
           "look at the logs of the ranks that the message names, and at the network between their machines"},
    Reason{reason::kPreempted, ReasonOf::kEnd, "preempted",
           "a worker of the job was asked to end, and the job saved a checkpoint if it could",
           "submit again with --resume newest"},
    Reason{reason::kRankExited, ReasonOf::kEnd, "infrastructure",
           "a rank exited with a code that says nothing", "read its log (`tandem logs`)"},
    Reason{reason::kRankKilled, ReasonOf::kEnd, "infrastructure",
           "a signal that Tandem did not send killed a rank",
           "find what sent it: the kernel log, an operator, a job scheduler"},
    Reason{reason::kRankLost, ReasonOf::kEnd, "requested",
           "the worker stopped its ranks because another rank of the attempt had ended",
           "see the cause of the job"},
    Reason{reason::kSpawnFailed, ReasonOf::kEnd, "infrastructure", "a worker could not start a rank",
           "mend what the message names"},
    Reason{reason::kStartTimeout, ReasonOf::kEnd, "infrastructure",
           "not every rank was ready within --start-timeout",
           "read the logs of the ranks that are named; a large checkpoint may need a longer --start-timeout"},
    Reason{reason::kStartWeightsUnusable, ReasonOf::kEnd, "user",
           "the weights of checkpoint.start_from do not fit the model, or cannot be read",
           "use weights of this model; the message names what differs"},
    Reason{reason::kStopped, ReasonOf::kEnd, "requested", "a rank was stopped by request",
           "see the cause of the job"},
    Reason{reason::kStoppedByWorker, ReasonOf::kEnd, "infrastructure",
           "a worker was asked to end and stopped its ranks",
           "submit again with --resume newest; give workers a --drain-timeout so that jobs save first"},
    Reason{reason::kStoppedUnasked, ReasonOf::kEnd, "infrastructure",
           "a rank says that it was stopped, though its worker had not asked",
           "read its log (`tandem logs`)"},
    Reason{reason::kUserError, ReasonOf::kEnd, "user", "a rank exited as for an error of the job",
           "read its log (`tandem logs`)"},
    Reason{reason::kWithdrawn, ReasonOf::kEnd, "requested",
           "the controller no longer wants the attempt on this worker", "see the cause of the job"},
    Reason{reason::kWorkerDisk, ReasonOf::kEnd, "infrastructure", "the disk of a worker is full, or fails",
           "make room below its --state"},
    Reason{reason::kWorkerLimits, ReasonOf::kEnd, "infrastructure",
           "a worker has no process, thread or open file left", "raise its limits (TasksMax, ulimit -n -u)"},
    Reason{reason::kWorkerLost, ReasonOf::kEnd, "infrastructure",
           "a worker was away for longer than --worker-timeout, or its daemon was restarted",
           "look at that machine and its worker log; submit again with --resume newest"},
    Reason{reason::kWorkerStopped, ReasonOf::kEnd, "requested",
           "a worker was asked to end and stopped its ranks", "submit again with --resume newest"},
    Reason{reason::kAccepted, ReasonOf::kWait, "", "the workers have accepted the ranks, which start",
           "wait"},
    Reason{reason::kBehindOthers, ReasonOf::kWait, "", "an earlier job waits for slots",
           "wait; `tandem get jobs --state QUEUED` lists the jobs before it"},
    Reason{reason::kBeyondCapacity, ReasonOf::kWait, "",
           "the job needs more slots than all registered workers have",
           "add workers, or ask for fewer ranks"},
    Reason{reason::kFinishing, ReasonOf::kWait, "", "every rank has done its steps, and they end", "wait"},
    Reason{reason::kMixedBuilds, ReasonOf::kWait, "",
           "only workers of different builds have the slots together", "run the same build on every worker"},
    Reason{reason::kNoWorkers, ReasonOf::kWait, "", "no worker is connected",
           "start tandem-worker, or read in its log why it is not connected"},
    Reason{reason::kPlaced, ReasonOf::kWait, "", "the ranks have slots, and their workers look at the job",
           "wait"},
    Reason{reason::kReady, ReasonOf::kWait, "", "every rank is ready, and the job trains", "nothing"},
    Reason{reason::kSubmitted, ReasonOf::kWait, "", "the job has just been taken", "wait"},
    Reason{reason::kWaitingForSlots, ReasonOf::kWait, "", "too few slots are free", "wait, or add workers"},
    Reason{reason::kWorkersApart, ReasonOf::kWait, "",
           "the free slots are on workers whose ranks cannot reach each other",
           "start each worker with a --controller or --data-address at which the others reach it"},
    Reason{reason::kDraining, ReasonOf::kWorker, "", "the worker was asked to end and takes no further rank",
           "nothing"},
    Reason{reason::kNoHealthySlots, ReasonOf::kWorker, "", "no slot of the worker is healthy",
           "read its log"},
    Reason{reason::kNotConnected, ReasonOf::kWorker, "", "the worker is away",
           "look at its machine and its log"},
    Reason{reason::kRunsUnknownJob, ReasonOf::kWorker, "",
           "the worker runs a job that the store of this controller does not have",
           "let it end, or restart the worker, which ends it; was the right state directory restored?"},
    Reason{reason::kStoppingLeftovers, ReasonOf::kWorker, "",
           "the worker ends ranks that are no longer wanted", "wait"},
    Reason{reason::kBadInventory, ReasonOf::kSession, "", "what a worker says of its slots cannot be used",
           "start it with fewer --slots, or run the same build on both"},
    Reason{reason::kBadWorkerId, ReasonOf::kSession, "", "the name of the worker is not allowed",
           "start it with another --id"},
    Reason{reason::kHelloMissing, ReasonOf::kSession, "", "a program that is no worker has opened a session",
           "run a worker of the same build"},
    Reason{reason::kOldTerm, ReasonOf::kSession, "",
           "the worker has seen a later start of the controller than this state directory knows",
           "start the controller on its newest state; to go on from a backup, restart the worker, which ends "
           "its jobs"},
    Reason{reason::kProtocolMismatch, ReasonOf::kSession, "",
           "worker and controller speak different protocols", "run the same build on both"},
    Reason{reason::kStoreFailed, ReasonOf::kSession, "", "the store of the controller failed, and it ends",
           "read its log, mend the disk, and start it again"},
    Reason{reason::kWorkerIdDenied, ReasonOf::kSession, "",
           "the certificate is not that of a worker of this name",
           "start it with an --id that the certificate allows, or give it a certificate of its own"},
    Reason{reason::kWorkerIdInUse, ReasonOf::kSession, "", "another process is connected under this name",
           "stop that one, or start this one with another --id"},
    Reason{reason::kCheckpointCommitted, ReasonOf::kEvent, "", "a checkpoint was saved", "nothing"},
    Reason{reason::kCheckpointDone, ReasonOf::kEvent, "", "a checkpoint that was asked for is saved",
           "nothing"},
    Reason{reason::kCheckpointNotDone, ReasonOf::kEvent, "",
           "a checkpoint that was asked for could not be saved",
           "mend what the message names, and ask again"},
    Reason{reason::kCheckpointNotRemoved, ReasonOf::kEvent, "",
           "an older checkpoint that `keep` has no place for stays",
           "remove it, or mend the permissions that the message names"},
    Reason{reason::kCheckpointPassedOver, ReasonOf::kEvent, "",
           "a checkpoint does not verify, so the job started from an older one",
           "look at the file system; the message names the damaged file"},
    Reason{reason::kCheckpointRequested, ReasonOf::kEvent, "", "somebody asked for a checkpoint", "nothing"},
    Reason{reason::kCheckpointWarning, ReasonOf::kEvent, "",
           "a newer build reports something of a checkpoint", "read the message"},
    Reason{reason::kDataRead, ReasonOf::kEvent, "",
           "the ranks have read what they train on: the message names it, what is held out, and what was "
           "left out",
           "nothing"},
    Reason{reason::kLossSpike, ReasonOf::kEvent, "",
           "the loss of a step is far above those of the steps before it; training goes on",
           "look at the text of that step, and at the learning rate if the loss stays high"},
    Reason{
        reason::kResumedWithOtherData, ReasonOf::kEvent, "",
        "the job goes on from a checkpoint with other text, or reads it otherwise: the message says what is "
        "read again or skipped",
        "nothing if that is meant; otherwise give it the texts, weights and batch of before"},
    Reason{reason::kResumedWithOtherSeed, ReasonOf::kEvent, "",
           "the job goes on from a checkpoint with another seed",
           "nothing if that is meant; otherwise give it the seed of before"},
    Reason{reason::kResumedWithOtherTraining, ReasonOf::kEvent, "",
           "the job goes on from a checkpoint with another rate, schedule, optimizer, clipping, precision, "
           "or number "
           "of steps that the rate depends on",
           "nothing if that is meant; otherwise give it the values of before"},
    Reason{reason::kWorkerConnected, ReasonOf::kEvent, "", "a worker is connected", "nothing"},
    Reason{reason::kWorkerDisconnected, ReasonOf::kEvent, "", "a worker is away",
           "look at its machine if it does not come back"},
    Reason{reason::kWorkerLeft, ReasonOf::kEvent, "", "a worker has left, as it was asked to", "nothing"},
};

}  // namespace tandem::proto
