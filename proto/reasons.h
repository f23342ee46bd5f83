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
    Reason{"BadAssignment", ReasonOf::kEnd, "infrastructure",
           "a worker was given ranks for slots that it does not have",
           "see the logs of the controller and the worker; run the same build on both"},
    Reason{"BuildMismatch", ReasonOf::kEnd, "infrastructure",
           "ranks, or a rank and its worker, are of different builds", "run the same build on every machine"},
    Reason{"CancelledByUser", ReasonOf::kEnd, "requested", "a user cancelled the job",
           "nothing; submit it again with --resume newest to go on"},
    Reason{"CheckpointDirectoryInUse", ReasonOf::kEnd, "user",
           "another job that is alive saves into the same checkpoint.directory",
           "wait for that job, cancel it, or use another directory"},
    Reason{"CheckpointDirectoryLost", ReasonOf::kEnd, "user",
           "another job has taken over checkpoint.directory",
           "decide which of the two you want; give the other one a directory of its own"},
    Reason{
        "CheckpointFailed", ReasonOf::kEnd, "infrastructure",
        "a checkpoint could not be saved or read; as an event, the job goes on with the one before",
        "make room, or mend the file system that the message names; then submit again with --resume newest"},
    Reason{"ClusterStopped", ReasonOf::kEnd, "requested",
           "`tandem up` was ended, which ends its running jobs",
           "start it again, and submit with --resume newest"},
    Reason{"ControllerLost", ReasonOf::kEnd, "infrastructure",
           "the ranks had heard of no controller for 0.8 of --orphan-timeout",
           "start the controller; submit again with --resume newest"},
    Reason{"DataAddressUnusable", ReasonOf::kEnd, "infrastructure",
           "a rank cannot use the address at which others should reach it",
           "start the worker with a --data-address of its machine"},
    Reason{"DataPositionDiffers", ReasonOf::kEnd, "user",
           "a checkpoint says that other sequences of its texts were read than this build would have read",
           "go on from another checkpoint, or take its weights with checkpoint.start_from"},
    Reason{"DigestMismatch", ReasonOf::kEnd, "infrastructure",
           "two ranks disagree on program, layout, kernels, text or the weights that they start from (the "
           "last two: class user)",
           "do what the message says: one build everywhere, or the same files on every worker"},
    Reason{"ExitedEarly", ReasonOf::kEnd, "infrastructure",
           "a rank exited with code 0 before the job was done", "read its log (`tandem logs`)"},
    Reason{"ExitedWithoutFinishing", ReasonOf::kEnd, "infrastructure", "a rank exited without saying why",
           "read its log (`tandem logs`)"},
    Reason{"Fenced", ReasonOf::kEnd, "infrastructure",
           "a rank ended itself because it had not heard from a controller for too long",
           "start the controller; submit again with --resume newest"},
    Reason{"Finished", ReasonOf::kEnd, "", "every rank has done all steps", "nothing"},
    Reason{"GradientSpike", ReasonOf::kEnd, "numeric",
           "the gradient norm of a step is far above those of the steps before it; as an event, training "
           "goes on, and with training.spikes: skip without the step's update",
           "look at the text of that step; lower the learning rate, warm up longer, or clip; `tandem norms` "
           "shows which parameter began"},
    Reason{"InternalError", ReasonOf::kEnd, "infrastructure", "an error inside Tandem or a library",
           "read the message and the log of the rank; report it if it comes again"},
    Reason{"InvalidData", ReasonOf::kEnd, "user", "the files of data.train or data.validation cannot be used",
           "mend what the message names"},
    Reason{"InvalidEnvironment", ReasonOf::kEnd, "user",
           "an environment variable of the worker cannot be used",
           "unset it, or give it the value that the message allows"},
    Reason{"InvalidJob", ReasonOf::kEnd, "user", "the job cannot run as it was asked for",
           "change the field that the message names"},
    Reason{"InvalidSpec", ReasonOf::kEnd, "user",
           "a file or folder of the job does not fit on the worker that looked",
           "change what the message names, or mount it on every worker"},
    Reason{"LinkLost", ReasonOf::kEnd, "infrastructure", "the connection between a rank and its worker broke",
           "read the logs of rank and worker"},
    Reason{"NoValidCheckpoint", ReasonOf::kEnd, "user",
           "no checkpoint that the job could go on from verifies",
           "restore one, or use an empty directory; the message names what is damaged"},
    Reason{"NonFinite", ReasonOf::kEnd, "numeric", "loss or gradients of a rank are not finite",
           "see NonfiniteGradients"},
    Reason{"NonfiniteGradients", ReasonOf::kEnd, "numeric",
           "gradients are infinite or NaN; as an event, the step was skipped",
           "lower the learning rate, warm up longer, clip, or look at the text of that step; `tandem norms` "
           "shows which parameter began"},
    Reason{"OutOfMemory", ReasonOf::kEnd, "out of memory",
           "a device, the machine or the container had no memory left for a rank",
           "`tandem plan` shows what needs how much: fewer sequences a microbatch, recompute, more ranks"},
    Reason{"PathHangs", ReasonOf::kEnd, "infrastructure", "a path of the job does not answer on a worker",
           "mend the mount that the message names"},
    Reason{"PeerLost", ReasonOf::kEnd, "peer lost",
           "a rank lost its connection to another rank, whose end has no known cause",
           "look at the logs of the ranks that the message names, and at the network between their machines"},
    Reason{"Preempted", ReasonOf::kEnd, "preempted",
           "a worker of the job was asked to end, and the job saved a checkpoint if it could",
           "submit again with --resume newest"},
    Reason{"RankExited", ReasonOf::kEnd, "infrastructure", "a rank exited with a code that says nothing",
           "read its log (`tandem logs`)"},
    Reason{"RankKilled", ReasonOf::kEnd, "infrastructure", "a signal that Tandem did not send killed a rank",
           "find what sent it: the kernel log, an operator, a job scheduler"},
    Reason{"RankLost", ReasonOf::kEnd, "requested",
           "the worker stopped its ranks because another rank of the attempt had ended",
           "see the cause of the job"},
    Reason{"SpawnFailed", ReasonOf::kEnd, "infrastructure", "a worker could not start a rank",
           "mend what the message names"},
    Reason{"StartTimeout", ReasonOf::kEnd, "infrastructure",
           "not every rank was ready within --start-timeout",
           "read the logs of the ranks that are named; a large checkpoint may need a longer --start-timeout"},
    Reason{"StartWeightsUnusable", ReasonOf::kEnd, "user",
           "the weights of checkpoint.start_from do not fit the model, or cannot be read",
           "use weights of this model; the message names what differs"},
    Reason{"Stopped", ReasonOf::kEnd, "requested", "a rank was stopped by request",
           "see the cause of the job"},
    Reason{"StoppedByWorker", ReasonOf::kEnd, "infrastructure",
           "a worker was asked to end and stopped its ranks",
           "submit again with --resume newest; give workers a --drain-timeout so that jobs save first"},
    Reason{"StoppedUnasked", ReasonOf::kEnd, "infrastructure",
           "a rank says that it was stopped, though its worker had not asked",
           "read its log (`tandem logs`)"},
    Reason{"UserError", ReasonOf::kEnd, "user", "a rank exited with the code of an error in the job",
           "read its log (`tandem logs`)"},
    Reason{"Withdrawn", ReasonOf::kEnd, "requested", "the controller withdrew the attempt from this worker",
           "see the cause of the job"},
    Reason{"WorkerDisk", ReasonOf::kEnd, "infrastructure", "the disk of a worker is full, or fails",
           "make room below its --state"},
    Reason{"WorkerLimits", ReasonOf::kEnd, "infrastructure",
           "a worker has no process, thread or open file left", "raise its limits (TasksMax, ulimit -n -u)"},
    Reason{"WorkerLost", ReasonOf::kEnd, "infrastructure",
           "a worker was away for longer than --worker-timeout, or its daemon was restarted",
           "look at that machine and its worker log; submit again with --resume newest"},
    Reason{"WorkerStopped", ReasonOf::kEnd, "requested", "a worker was asked to end and stopped its ranks",
           "submit again with --resume newest"},
    Reason{"Accepted", ReasonOf::kWait, "", "the workers have accepted the ranks, which start", "wait"},
    Reason{"BehindOthers", ReasonOf::kWait, "", "an earlier job waits for slots",
           "wait; `tandem get jobs --state QUEUED` lists the jobs before it"},
    Reason{"BeyondCapacity", ReasonOf::kWait, "", "the job needs more slots than all registered workers have",
           "add workers, or ask for fewer ranks"},
    Reason{"Finishing", ReasonOf::kWait, "", "every rank has done its steps, and the ranks are ending",
           "wait"},
    Reason{"MixedBuilds", ReasonOf::kWait, "", "only workers of different builds have the slots together",
           "run the same build on every worker"},
    Reason{"NoWorkers", ReasonOf::kWait, "", "no worker is connected",
           "start tandem-worker, or read in its log why it is not connected"},
    Reason{"Placed", ReasonOf::kWait, "", "the ranks have slots, and their workers check the job", "wait"},
    Reason{"Ready", ReasonOf::kWait, "", "every rank is ready, and the job trains", "nothing"},
    Reason{"Submitted", ReasonOf::kWait, "", "the job has just been accepted", "wait"},
    Reason{"WaitingForSlots", ReasonOf::kWait, "", "too few slots are free", "wait, or add workers"},
    Reason{"WorkersApart", ReasonOf::kWait, "",
           "the free slots are on workers whose ranks cannot reach each other",
           "start each worker with a --controller or --data-address at which the others reach it"},
    Reason{"Draining", ReasonOf::kWorker, "", "the worker was asked to end and accepts no more ranks",
           "nothing"},
    Reason{"NoHealthySlots", ReasonOf::kWorker, "", "no slot of the worker is healthy", "read its log"},
    Reason{"NotConnected", ReasonOf::kWorker, "", "the worker is away", "look at its machine and its log"},
    Reason{"RunsUnknownJob", ReasonOf::kWorker, "",
           "the worker runs a job that the store of this controller does not have",
           "let it end, or restart the worker, which ends it; was the right state directory restored?"},
    Reason{"StoppingLeftovers", ReasonOf::kWorker, "", "the worker ends ranks that are no longer wanted",
           "wait"},
    Reason{"BadInventory", ReasonOf::kSession, "", "the slots that a worker lists cannot be used",
           "start it with fewer --slots, or run the same build on both"},
    Reason{"BadWorkerId", ReasonOf::kSession, "", "the name of the worker is not allowed",
           "start it with another --id"},
    Reason{"HelloMissing", ReasonOf::kSession, "", "a program that is not a worker has opened a session",
           "run a worker of the same build"},
    Reason{"OldTerm", ReasonOf::kSession, "",
           "the worker has seen a later start of the controller than this state directory knows",
           "start the controller on its newest state; to go on from a backup, restart the worker, which ends "
           "its jobs"},
    Reason{"ProtocolMismatch", ReasonOf::kSession, "", "worker and controller speak different protocols",
           "run the same build on both"},
    Reason{"StoreFailed", ReasonOf::kSession, "", "the store of the controller failed, and it ends",
           "read its log, mend the disk, and start it again"},
    Reason{"WorkerIdDenied", ReasonOf::kSession, "", "the certificate is not that of a worker of this name",
           "start it with an --id that the certificate allows, or give it a certificate of its own"},
    Reason{"WorkerIdInUse", ReasonOf::kSession, "", "another process is connected under this name",
           "stop that one, or start this one with another --id"},
    Reason{"CheckpointCommitted", ReasonOf::kEvent, "", "a checkpoint was saved", "nothing"},
    Reason{"CheckpointDone", ReasonOf::kEvent, "", "a checkpoint that was asked for is saved", "nothing"},
    Reason{"CheckpointNotDone", ReasonOf::kEvent, "", "a checkpoint that was asked for could not be saved",
           "mend what the message names, and ask again"},
    Reason{"CheckpointNotRemoved", ReasonOf::kEvent, "",
           "an older checkpoint, beyond `keep`, could not be removed",
           "remove it, or mend the permissions that the message names"},
    Reason{"CheckpointPassedOver", ReasonOf::kEvent, "",
           "a checkpoint does not verify, so the job started from an older one",
           "look at the file system; the message names the damaged file"},
    Reason{"CheckpointRequested", ReasonOf::kEvent, "", "a user asked for a checkpoint", "nothing"},
    Reason{"CheckpointWarning", ReasonOf::kEvent, "",
           "a newer build reports a problem of a checkpoint that this build does not know",
           "read the message"},
    Reason{"DataRead", ReasonOf::kEvent, "",
           "the ranks have read what they train on: the message names it, what is held out, and what was "
           "left out",
           "nothing"},
    Reason{"LossSpike", ReasonOf::kEvent, "",
           "the loss of a step is far above those of the steps before it; training goes on",
           "look at the text of that step, and at the learning rate if the loss stays high"},
    Reason{"ResumedWithOtherData", ReasonOf::kEvent, "",
           "the job goes on from a checkpoint with other text, or reads it in another way: the message says "
           "what is read again or skipped",
           "nothing if that is intended; otherwise give it the texts, weights and batch of before"},
    Reason{"ResumedWithOtherSeed", ReasonOf::kEvent, "",
           "the job goes on from a checkpoint with another seed",
           "nothing if that is intended; otherwise give it the seed of before"},
    Reason{"ResumedWithOtherTraining", ReasonOf::kEvent, "",
           "the job goes on from a checkpoint with another rate, schedule, optimizer, clipping, precision, "
           "or number of steps that the rate depends on",
           "nothing if that is intended; otherwise give it the values of before"},
    Reason{"WorkerConnected", ReasonOf::kEvent, "", "a worker is connected", "nothing"},
    Reason{"WorkerDisconnected", ReasonOf::kEvent, "", "a worker is away",
           "look at its machine if it does not come back"},
    Reason{"WorkerLeft", ReasonOf::kEvent, "", "a worker has left, as it was asked to", "nothing"},
};

// Returns `code`. Does not compile unless kReasons has it.
consteval const char* ReasonCode(std::string_view code) {
  for (const Reason& reason : kReasons) {
    if (reason.code == code) {
      return reason.code;
    }
  }
  throw "no such reason";
}

}  // namespace tandem::proto
