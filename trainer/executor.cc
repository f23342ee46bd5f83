// SPDX-License-Identifier: Apache-2.0
#include "trainer/executor.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <map>
#include <set>
#include <stdexcept>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "comm/communicator.h"
#include "device/device.h"
#include "plan/job_plan.h"
#include "schedules/program/text.h"
#include "trainer/backend.h"
#include "trainer/binder.h"
#include "trainer/bound_program.h"
#include "trainer/collective_log.h"
#include "trainer/failure.h"
#include "trainer/profiling.h"
#include "trainer/progress.h"
#include "trainer/run_memory.h"
#include "trainer/segment_graph.h"
#include "trainer/stage_memory.h"

namespace tandem::trainer {

using schedules::Instruction;
using schedules::Opcode;
using schedules::Program;

class Executor::Impl {
 public:
  Impl(const plan::JobPlan& plan, const std::vector<std::unique_ptr<model::Node>>& nodes,
       const std::vector<fsdp::UnitShard>& units, const StageMemory& memory,
       comm::Communicators& communicators, link::SharedPage& page, Backend& backend,
       const ExecutorOptions& options)
      : plan_(plan),
        communicators_(communicators),
        page_(page),
        options_(options),
        device_(backend.device()),
        collectives_(communicators, page),
        progress_(page, !device_.finishes_in_calls()),
        run_memory_(plan, memory),
        binder_(plan, nodes, units, memory, backend, options.fill_with_nan,
                [this](int parity, int microbatch) { reader_.Await(slots_[parity].number, microbatch); }),
        graphs_(plan.outline, device_) {
    for (const int parity : {0, 1}) {
      slots_[parity].executor = this;
      slots_[parity].parity = parity;
    }
    const std::set<std::string> urgent = plan::HighPriorityStreams(plan);
    SharedCalls calls(binder_, memory);
    int first = 0;  // of the program's instructions among those of all
    for (const Program* program : plan.stage.All()) {
      const int begin = std::exchange(first, first + static_cast<int>(program->instructions.size()));
      if (program == &plan.stage.train_save && !memory.saves()) {
        continue;
      }
      programs_.emplace(program->name,
                        std::make_unique<PlacedProgram>(*program, communicators, plan::CommunicatorUses(plan),
                                                        calls, begin));
      for (const schedules::Stream& stream : program->streams) {
        StreamEntry& entry = streams_[stream.name];
        entry.copies_host = stream.copies_host;
        if (entry.stream == nullptr) {
          entry.stream = device_.MakeStream(
              stream.name,
              urgent.contains(stream.name) ? device::StreamPriority::kHigh : device::StreamPriority::kNormal,
              error_);
        }
      }
    }
    for (auto& [name, bound] : programs_) {
      for (const schedules::Stream& stream : bound->program.program().streams) {
        bound->streams.push_back(streams_.at(stream.name).stream.get());
      }
      for (const Segment& segment : bound->program.segments()) {
        bound->graphs.push_back(segment.replayed ? &graphs_.Of(segment) : nullptr);
      }
    }
    device_.Synchronize();  // with what was set up
  }

  void Issue(const RunRequest& request, BatchReader::Load load, int64_t step) {
    if (in_flight_ == 2) {
      throw std::logic_error("a third run before the first has ended");
    }
    WithPlace([this] { error_.RethrowIfSet(); });
    const int64_t number = next_++;
    Slot& slot = slots_[number % 2];
    slot.number = number;
    collectives_.Begin(slot.parity, number);
    slot.bound = ProgramOf(request.run.kind);
    slot.request = request;
    slot.step = step;
    slot.ended.assign(slot.bound->program.segments().size(), device::Event());
    ++in_flight_;
    if (in_flight_ == 1) {
      progress_.Begins(slot.Step());
    }
    const Program& program = slot.bound->program.program();
    run_memory_.WriteInputs(request, program, slot.parity);
    if (const std::vector<int64_t*>& batches = run_memory_.Batches(program, slot.parity); !batches.empty()) {
      reader_.Request(number, batches, std::move(load));
    }
    try {
      IssueAll(slot);
    } catch (...) {
      // A GPU that has failed throws again at its next use. The instruction that met it first has
      // set its error already; that one is thrown.
      Fail(std::current_exception());
      WithPlace([this] { error_.RethrowIfSet(); });
    }
  }

  RunRecord Await() {
    if (in_flight_ == 0) {
      throw std::logic_error("no run is in flight");
    }
    const int64_t number = next_ - in_flight_;
    Slot& slot = slots_[number % 2];
    WithPlace([&] {
      slot.end_stream->Synchronize(slot.end);
      error_.RethrowIfSet();
    });
    --in_flight_;
    progress_.Look();
    const double seconds = SecondsOf(slot);
    if (slot.recorder != nullptr) {
      recorded_ = slot.recorder->Take();
      slot.recorder = nullptr;
    }
    RunRecord record =
        run_memory_.Read(slot.request, slot.bound->program.program(), static_cast<int>(number % 2));
    record.seconds = seconds;
    return record;
  }

  std::optional<v1::StepTimeline> TakeRecorded() { return std::exchange(recorded_, std::nullopt); }

  int in_flight() const { return in_flight_; }

  void Fail(const std::exception_ptr& error) {
    error_.Set(error);
    reader_.Cancel();
    communicators_.Abort();
  }

  std::exception_ptr FailHungCollective(const std::exception_ptr& error) {
    std::exception_ptr reported = error;
    if (const std::optional<CollectiveLog::Entry> pending = collectives_.OldestPending()) {
      reported = std::make_exception_ptr(
          InstructionError(error, pending->step, schedules::ToText(*pending->instruction, plan_.outline),
                           pending->communicator->name()));
    }
    Fail(reported);
    return reported;
  }

 private:
  struct StreamEntry {
    bool copies_host = false;
    std::unique_ptr<device::Stream> stream;
  };

  // When a stream gets to a point; set by its work there, and left null by a stream that skips that.
  using Time = std::unique_ptr<device::TimeMark>;

  // A run in flight, by parity.
  struct Slot {
    Impl* executor = nullptr;
    int parity = 0;
    int64_t number = -1;
    PlacedProgram* bound = nullptr;
    RunRequest request;
    int64_t step = 0;                  // of a validation
    std::vector<device::Event> ended;  // by segment, where another waits for it
    std::vector<device::Event> ends;   // by stream: of all of the run's work on it
    device::Event end;                 // of all of them
    device::Stream* end_stream = nullptr;
    std::shared_ptr<Time> since;  // the end of the run before, or where it was issued
    std::shared_ptr<Time> until;  // its end
    std::unique_ptr<StepRecorder> recorder;

    int64_t Step() const { return StepOf(request.run, step); }
    int64_t StepOfWork(const BoundInstruction& bound) const {
      return StepOf(request.run, bound.instruction->opcode, step);
    }
  };

  PlacedProgram* ProgramOf(RunKind kind) {
    static constexpr const char* kNames[] = {"train", "begin", "update", "validate", "train_save"};
    const auto found = programs_.find(kNames[static_cast<int>(kind)]);
    if (found == programs_.end()) {
      throw std::logic_error(absl::StrCat("the plan has no program ", kNames[static_cast<int>(kind)]));
    }
    return found->second.get();
  }

  void Mark(device::Stream& stream, const std::shared_ptr<Time>& time) {
    stream.Enqueue([this, time] { *time = device_.MarkTime(); });
  }

  static double SecondsOf(const Slot& slot) {
    const bool is_known = *slot.since != nullptr && *slot.until != nullptr;
    return is_known ? static_cast<double>((*slot.until)->Since(**slot.since)) * 1e-9 : 0;
  }

  void IssueAll(Slot& slot) {
    const Slot& former = slots_[1 - slot.parity];
    if (in_flight_ > 1 && !(slot.request.after_wait && former.end.IsReached())) {
      slot.since = former.until;
    } else {
      slot.since = std::make_shared<Time>();
      Mark(*slot.bound->streams.front(), slot.since);
    }
    if (slot.request.run.recording == Recording::kNone) {
      IssueSegments(slot);
    } else {
      Record(slot);
    }
    slot.ends.clear();
    for (auto& [name, entry] : streams_) {
      slot.ends.push_back(entry.stream->Record());
    }
    // The host waits for one event. It comes on the stream of the program's last instruction, a report,
    // behind which nothing of the next run is late.
    device::Stream& last = *slot.bound->streams[slot.bound->program.program().instructions.back().stream];
    for (const device::Event& end : slot.ends) {
      last.Wait(end);
    }
    slot.until = std::make_shared<Time>();
    Mark(last, slot.until);
    slot.end = last.Record();
    slot.end_stream = &last;
  }

  // A run starts after all of the former run but the streams that copy to and from the host.
  void JoinFormerRun(const Slot& slot) {
    const Slot& former = slots_[(slot.number + 1) % 2];
    if (former.number < 0) {
      return;
    }
    for (auto& [name, entry] : streams_) {
      size_t other = 0;
      for (auto& [other_name, other_entry] : streams_) {
        const device::Event& end = former.ends[other++];
        if (!entry.copies_host && !other_entry.copies_host && &entry != &other_entry) {
          entry.stream->Wait(end);
        }
      }
    }
  }

  void IssueSegments(Slot& slot) {
    JoinFormerRun(slot);
    const std::vector<Segment>& segments = slot.bound->program.segments();
    for (size_t i = 0; i < segments.size(); ++i) {
      const Segment& segment = segments[i];
      device::Stream& stream = *slot.bound->streams[segment.stream];
      for (const int awaited : segment.waits) {
        if (segment.holds_issue) {
          stream.Synchronize(slot.ended[awaited]);
        } else {
          stream.Wait(slot.ended[awaited]);
        }
      }
      if (options_.separate_instructions && !segment.replayed) {
        for (const BoundInstruction* bound : segment.instructions) {
          stream.Enqueue([&slot, bound] { slot.executor->Run(slot, *bound); });
        }
      } else {
        stream.Enqueue([&slot, &segment] { slot.executor->RunSegment(slot, segment); });
      }
      if (segment.awaited) {
        slot.ended[i] = stream.Record();
        NoteIssued(slot, *segment.instructions.back(), slot.ended[i]);
      }
    }
  }

  // The same with every instruction timed; no other run is in flight.
  void Record(Slot& slot) {
    const Program& program = slot.bound->program.program();
    slot.recorder = std::make_unique<StepRecorder>(device_, program, slot.request.run.computed,
                                                   slot.request.run.recording);
    device::Stream& first = *slot.bound->streams.front();
    first.Enqueue([&slot] { slot.recorder->MarkOrigin(); });
    const device::Event origin = first.Record();
    for (auto& [name, entry] : streams_) {
      entry.stream->Wait(origin);
    }
    if (slot.request.run.recording != Recording::kSerialized) {
      IssueSegments(slot);
      return;
    }
    // In the program's order, each after the end of the one before.
    JoinFormerRun(slot);
    device::Event end;
    for (const BoundInstruction& bound : slot.bound->program.instructions()) {
      device::Stream& stream = *slot.bound->streams[bound.instruction->stream];
      if (bound.instruction->opcode == Opcode::kHostWait) {
        stream.Synchronize(end);
      }
      stream.Wait(end);
      stream.Enqueue([&slot, &bound] { slot.executor->Run(slot, bound); });
      end = stream.Record();
      NoteIssued(slot, bound, end);
    }
  }

  void RunSegment(Slot& slot, const Segment& segment) {
    SegmentGraph* const graph = slot.bound->graphs[&segment - slot.bound->program.segments().data()];
    if (graph != nullptr && slot.recorder == nullptr) {
      Replay(slot, segment, *graph);
      return;
    }
    for (const BoundInstruction* bound : segment.instructions) {
      if (error_.is_set()) {
        return;
      }
      Run(slot, *bound);
    }
  }

  void Replay(Slot& slot, const Segment& segment, SegmentGraph& graph) {
    if (error_.is_set()) {
      return;
    }
    try {
      graphs_.Run(graph);
      if (device_.finishes_in_calls()) {
        NoteFinished(slot, *segment.instructions.back());
      }
    } catch (...) {
      FailAt(slot, *segment.instructions[graph.at()]);
      throw;
    }
  }

  void Run(Slot& slot, const BoundInstruction& bound) {
    try {
      const int communicator = bound.instruction->communicator;
      const int use = communicator < 0 ? -1 : slot.bound->uses_of[communicator];
      const size_t entry =
          use < 0 ? 0 : collectives_.Starts(slot.parity, use, *bound.instruction, slot.StepOfWork(bound));
      const Call& call = *bound.calls[slot.parity];
      if (slot.recorder == nullptr) {
        call();
      } else {
        slot.recorder->Run(bound.index, call);
      }
      if (use >= 0) {
        collectives_.Started(slot.parity, use, entry);
      }
      if (device_.finishes_in_calls()) {
        NoteFinished(slot, bound);
      }
    } catch (...) {
      FailAt(slot, bound);
      throw;
    }
  }

  // The instruction has thrown what is being handled.
  void FailAt(const Slot& slot, const BoundInstruction& bound) {
    const int communicator = bound.instruction->communicator;
    Fail(std::make_exception_ptr(InstructionError(
        std::current_exception(), slot.StepOfWork(bound),
        schedules::ToText(*bound.instruction, plan_.outline),
        communicator < 0 ? "" : slot.bound->program.program().communicators[communicator].group)));
  }

  // The streams that copy to and from the host go ahead into the next run, where the page would jump to and
  // fro between two steps.
  static bool HasPlace(const Slot& slot, const BoundInstruction& bound) {
    return !slot.bound->program.program().streams[bound.instruction->stream].copies_host;
  }

  Progress::Position PositionOf(const Slot& slot, const BoundInstruction& bound) const {
    return {.run = slot.number, .step = slot.Step(), .instruction = slot.bound->first + bound.index};
  }

  void NoteFinished(const Slot& slot, const BoundInstruction& bound) {
    if (HasPlace(slot, bound)) {
      progress_.Finished(PositionOf(slot, bound));
    } else {
      progress_.Moved();
    }
  }

  void NoteIssued(const Slot& slot, const BoundInstruction& bound, const device::Event& end) {
    if (!device_.finishes_in_calls() && HasPlace(slot, bound)) {
      progress_.Issued(slot.bound->streams[bound.instruction->stream], PositionOf(slot, bound), end);
    }
  }

  // Calls `call`. An error of a GPU that no instruction met says where the rank was, as far as the page
  // knows.
  template <typename F>
  void WithPlace(const F& call) const {
    try {
      call();
    } catch (const device::DeviceError& error) {
      const int64_t place = page_.instruction.load(std::memory_order_relaxed);
      std::string behind = "before the first instruction has finished";
      for (const auto& [name, bound] : programs_) {
        const std::vector<Instruction>& instructions = bound->program.program().instructions;
        const int64_t index = place - bound->first;
        if (index >= 0 && index < static_cast<int64_t>(instructions.size())) {
          behind = absl::StrCat("after ", schedules::ToText(instructions[index], plan_.outline));
        }
      }
      throw InstructionError(
          std::make_exception_ptr(device::DeviceError(absl::StrCat(error.what(), "; ", behind))),
          page_.step.load(std::memory_order_relaxed), /*instruction=*/"", /*group=*/"");
    }
  }

  const plan::JobPlan& plan_;
  comm::Communicators& communicators_;
  link::SharedPage& page_;
  const ExecutorOptions options_;
  device::Device& device_;
  CollectiveLog collectives_;
  Progress progress_;
  RunMemory run_memory_;
  BatchReader reader_;
  Binder binder_;
  SegmentGraphs graphs_;
  std::map<std::string, std::unique_ptr<PlacedProgram>> programs_;

  int64_t next_ = 0;  // number of the run that is issued next
  int in_flight_ = 0;
  std::array<Slot, 2> slots_;  // by parity
  std::optional<v1::StepTimeline> recorded_;

  device::StreamError error_;
  // Last: joined before anything that their work uses is gone.
  std::map<std::string, StreamEntry> streams_;
};

Executor::Executor(const plan::JobPlan& plan, const std::vector<std::unique_ptr<model::Node>>& nodes,
                   const std::vector<fsdp::UnitShard>& units, const StageMemory& memory,
                   comm::Communicators& communicators, link::SharedPage& page, Backend& backend,
                   const ExecutorOptions& options)
    : impl_(std::make_unique<Impl>(plan, nodes, units, memory, communicators, page, backend, options)) {}

Executor::~Executor() = default;

void Executor::Issue(const RunRequest& request, BatchReader::Load load, int64_t step) {
  impl_->Issue(request, std::move(load), step);
}

RunRecord Executor::Await() { return impl_->Await(); }

std::optional<v1::StepTimeline> Executor::TakeRecorded() { return impl_->TakeRecorded(); }

int Executor::in_flight() const { return impl_->in_flight(); }

void Executor::Fail(std::exception_ptr error) { impl_->Fail(error); }

std::exception_ptr Executor::FailHungCollective(const std::exception_ptr& error) {
  return impl_->FailHungCollective(error);
}

}  // namespace tandem::trainer
