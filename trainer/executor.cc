#include "trainer/executor.h"

#include <ATen/core/Tensor.h>
#include <time.h>

#include <atomic>
#include <map>
#include <mutex>
#include <stdexcept>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "comm/communicator.h"
#include "device/device.h"
#include "fsdp/sharded_unit.h"
#include "plan/job_plan.h"
#include "schedules_v1/text.h"
#include "trainer/backend.h"
#include "trainer/bound_program.h"
#include "trainer/failure.h"
#include "trainer/rank_memory.h"
#include "trainer/step_recorder.h"

namespace tandem::trainer {

using schedules_v1::Instruction;
using schedules_v1::Opcode;
using schedules_v1::StreamKind;

namespace {

int64_t Nanoseconds(clockid_t clock) {
  timespec now;
  clock_gettime(clock, &now);
  return int64_t{now.tv_sec} * 1'000'000'000 + now.tv_nsec;
}

// What NCCL and Gloo call it.
const char* OperationOf(Opcode opcode) {
  return opcode == Opcode::kReduceGradients ? "AllToAll" : "AllGather";
}

}  // namespace

class Executor::Impl {
 public:
  Impl(const plan::JobPlan& plan, const std::vector<std::unique_ptr<model::Node>>& nodes, RankMemory& memory,
       const ExecutorCommunicators& communicators, RequestBox& requests, link::SharedPage& page,
       Backend& backend, const ExecutorOptions& options)
      : plan_(plan),
        memory_(memory),
        communicators_(communicators),
        requests_(requests),
        page_(page),
        options_(options),
        device_(backend.device()),
        norm_(backend.MakeGradientNorm(plan.train.ranks)),
        train_(plan.train_program, plan, nodes, memory) {
    if (plan.train.validate_every_steps > 0 && plan.train.validation_batches > 0) {
      validate_ = std::make_unique<BoundProgram>(plan.validate_program, plan, nodes, memory);
    }
    for (const BoundProgram* program : {&train_, static_cast<const BoundProgram*>(validate_.get())}) {
      if (program != nullptr) {
        MakeStreams(program->program());
      }
    }
    device_.Synchronize();  // with what was set up
  }

  RunResult Run(const BoundProgram* program, const RunInputs& inputs) {
    if (program == nullptr) {
      throw std::logic_error("the plan has no such program");
    }
    poison_.RethrowIfSet();  // streams that an error left behind may still read what is set below
    inputs_ = inputs;
    running_ = program;
    has_norm_ = false;
    {
      const std::lock_guard<std::mutex> lock(mu_);
      collectives_.clear();
    }
    if (inputs.recording == Recording::kNone) {
      Issue(*program);
    } else {
      Record(*program);
    }
    for (auto& [kind, stream] : streams_) {
      stream->Synchronize();
    }
    RunResult result;
    for (const std::unique_ptr<device::PinnedBuffer>& loss : program->losses()) {
      result.losses.push_back(*static_cast<const double*>(loss->host()));
    }
    if (has_norm_) {
      result.norm = norm_->Read();
    }
    if (inputs.recording != Recording::kNone) {
      result.recorded = recorder_->Take();
    }
    return result;
  }

  void Fail(const std::exception_ptr& error) {
    poison_.Set(error);
    for (const GroupCommunicator* group :
         {&communicators_.gather, &communicators_.reduce, &communicators_.norm}) {
      group->communicator->Abort();
    }
  }

  std::exception_ptr Lose(const std::exception_ptr& error) {
    for (const Collective& collective : Collectives()) {
      const comm::Communicator& communicator = *collective.group->communicator;
      if (collective.sequence < communicator.num_ended()) {
        continue;
      }
      const std::exception_ptr told = std::make_exception_ptr(InstructionError(
          std::make_exception_ptr(comm::CommError(
              absl::StrCat("group ", communicator.name(), " rank ", communicator.rank(), " ",
                           OperationOf(collective.instruction->opcode), ": ", Message(error)))),
          collective.step, schedules_v1::ToText(*collective.instruction, plan_.outline_v1), communicator.name()));
      Fail(told);
      return told;
    }
    Fail(error);
    return error;
  }

  const BoundProgram* train() const { return &train_; }
  const BoundProgram* validate() const { return validate_.get(); }

 private:
  struct Collective {
    const GroupCommunicator* group = nullptr;
    uint64_t sequence = 0;  // among those of the group
    const Instruction* instruction = nullptr;
    int64_t step = 0;
  };

  void MakeStreams(const schedules_v1::Program& program) {
    for (const Instruction& instruction : program.instructions) {
      std::unique_ptr<device::Stream>& stream = streams_[instruction.stream];
      if (stream == nullptr) {
        stream = device_.MakeStream(schedules_v1::ToText(instruction.stream), poison_);
      }
    }
  }

  device::Stream& StreamOf(StreamKind kind) { return *streams_.at(kind); }

  void Issue(const BoundProgram& program) {
    JoinStreams();
    events_.assign(program.segments().size(), device::Event());
    for (size_t i = 0; i < program.segments().size(); ++i) {
      const Segment& segment = program.segments()[i];
      device::Stream& stream = StreamOf(segment.stream);
      for (const int awaited : segment.waits) {
        stream.Wait(events_[awaited]);
      }
      if (options_.separate_instructions) {
        for (const BoundInstruction* bound : segment.instructions) {
          stream.Enqueue([this, bound] { RunGuarded(*bound); });
        }
      } else {
        stream.Enqueue([this, &segment] { RunSegment(segment); });
      }
      if (segment.awaited) {
        events_[i] = stream.Record();
      }
    }
  }

  // The same with every instruction timed.
  void Record(const BoundProgram& program) {
    recorder_ = std::make_unique<StepRecorder>(device_, program.program(), inputs_.step, inputs_.recording);
    device::Stream& first = *streams_.begin()->second;
    first.Enqueue([this] { recorder_->MarkOrigin(); });
    if (inputs_.recording == Recording::kAlone) {
      IssueOneByOne(program, first);
    } else {
      Issue(program);
    }
  }

  // In the program's order, each after the end of the one before; the first after what is on `begin`.
  void IssueOneByOne(const BoundProgram& program, device::Stream& begin) {
    device::Stream* last = &begin;
    for (const BoundInstruction& bound : program.instructions()) {
      device::Stream& stream = StreamOf(bound.instruction->stream);
      if (last != &stream) {
        stream.Wait(last->Record());
      }
      stream.Enqueue([this, &bound] { RunGuarded(bound); });
      last = &stream;
    }
  }

  // Every stream waits for all that was issued on the others.
  void JoinStreams() {
    for (auto& [kind, stream] : streams_) {
      const device::Event end = stream->Record();
      for (auto& [other_kind, other] : streams_) {
        if (other_kind != kind) {
          other->Wait(end);
        }
      }
    }
  }

  // Runs `work`; where it throws, fails with what `describe` makes of the exception, and rethrows.
  template <typename Describe, typename Work>
  void Guarded(const Describe& describe, const Work& work) {
    try {
      work();
    } catch (...) {
      Fail(describe());
      throw;
    }
  }

  void RunSegment(const Segment& segment) {
    for (const BoundInstruction* bound : segment.instructions) {
      if (poison_.is_set()) {
        return;
      }
      RunGuarded(*bound);
    }
  }

  void RunGuarded(const BoundInstruction& bound) {
    Guarded(
        [&] {
          const Instruction& instruction = *bound.instruction;
          const GroupCommunicator* group = Group(instruction.communicator);
          return std::make_exception_ptr(InstructionError(
              std::current_exception(), inputs_.step, schedules_v1::ToText(instruction, plan_.outline_v1),
              group == nullptr ? "" : group->communicator->name()));
        },
        [&] {
          if (inputs_.recording == Recording::kNone) {
            RunInstruction(bound);
          } else {
            recorder_->Run(bound.index, [&] { RunInstruction(bound); });
          }
        });
  }

  const GroupCommunicator* Group(schedules_v1::Communicator communicator) const {
    switch (communicator) {
      case schedules_v1::Communicator::kNone:
        return nullptr;
      case schedules_v1::Communicator::kGather:
        return &communicators_.gather;
      case schedules_v1::Communicator::kReduce:
        return &communicators_.reduce;
      case schedules_v1::Communicator::kNorm:
        return &communicators_.norm;
    }
    return nullptr;
  }

  void Tell(const BoundInstruction& bound) {
    page_.instruction.store(bound.index, std::memory_order_relaxed);
    page_.microbatch.store(bound.instruction->microbatch, std::memory_order_relaxed);
    page_.progress_monotonic_ns.store(Nanoseconds(CLOCK_MONOTONIC), std::memory_order_relaxed);
    if (const GroupCommunicator* group = Group(bound.instruction->communicator)) {
      // Every instruction with a communicator is one collective.
      const uint64_t sequence = group->communicator->num_collectives();
      page_.collectives[group->group].store(sequence + 1, std::memory_order_relaxed);
      const std::lock_guard<std::mutex> lock(mu_);
      collectives_.push_back({group, sequence, bound.instruction, inputs_.step});
    }
  }

  std::vector<Collective> Collectives() {
    const std::lock_guard<std::mutex> lock(mu_);
    return collectives_;
  }

  void FillWithNan(const std::vector<at::Tensor>& tensors) {
    for (const at::Tensor& tensor : tensors) {
      if (tensor.defined()) {
        device_.Fill(tensor.mutable_data_ptr(), 0xFF, static_cast<int64_t>(tensor.nbytes()));
      }
    }
  }

  // An id outside the vocabulary has no row: a GPU would make a NaN of it, and the step would be skipped.
  void CheckTokens(int microbatch, const int64_t* tokens) const {
    const int64_t columns = plan_.batch.sequence_length + 1;
    for (int64_t i = 0; i < plan_.batch.sequences * columns; ++i) {
      if (tokens[i] < 0 || tokens[i] >= plan_.model.vocab_size) {
        throw UserError(absl::StrCat("data: microbatch ", microbatch, " of this rank has token id ",
                                     tokens[i], " at position ", i % columns, " of sequence ", i / columns,
                                     "; a model with model.vocab_size ", plan_.model.vocab_size,
                                     " takes ids from 0 to ", plan_.model.vocab_size - 1,
                                     ": use the tokenizer that the vocabulary belongs to"));
      }
    }
  }

  void RunInstruction(const BoundInstruction& bound) {
    const Instruction& instruction = *bound.instruction;
    if (instruction.opcode == Opcode::kRelease || instruction.opcode == Opcode::kReshard) {
      if (options_.poison) {
        FillWithNan(bound.dead);
      }
      return;
    }
    Tell(bound);
    switch (instruction.opcode) {
      case Opcode::kLoadBatch: {
        auto* const tokens = static_cast<int64_t*>(bound.tokens->host());
        inputs_.load(instruction.microbatch, tokens);
        CheckTokens(instruction.microbatch, tokens);
        bound.tokens->ToDevice();
        break;
      }
      case Opcode::kForward:
      case Opcode::kBackward:
      case Opcode::kBackwardInput:
      case Opcode::kBackwardWeight:
        bound.node->Run(bound.call);
        if (options_.poison) {
          FillWithNan(bound.scratch);
        }
        break;
      case Opcode::kUnshard: {
        at::Tensor slot = bound.slot[0];
        bound.unit->Unshard(*Group(instruction.communicator)->communicator, slot);
        break;
      }
      case Opcode::kReduceGradients: {
        at::Tensor staging = bound.staging[0];
        bound.unit->ReduceGradients(*Group(instruction.communicator)->communicator, bound.slot[0], staging,
                                    instruction.add_parameter_gradients.at(0));
        if (options_.poison) {
          FillWithNan(bound.slot);
          FillWithNan(bound.staging);
        }
        break;
      }
      case Opcode::kGradientNorm:
        norm_->Agree(memory_.units(),
                     {.bits = requests_.Take(), .profile = requests_.WantedProfile().ToNumber()},
                     Contributions(), plan_.train.optimizer.clip_grad_norm,
                     *Group(instruction.communicator)->communicator);
        has_norm_ = true;
        break;
      case Opcode::kOptimizerStep:
        bound.unit->OptimizerStep(Inputs());
        break;
      case Opcode::kReport:
        for (const std::unique_ptr<device::PinnedBuffer>& loss : running_->losses()) {
          loss->ToHost();
        }
        break;
      case Opcode::kReshard:
      case Opcode::kRelease:
      case Opcode::kSnapshot:
        break;
    }
  }

  // Of one step, over all ranks.
  double Contributions() const {
    return static_cast<double>(plan_.train.microbatches_per_rank) * static_cast<double>(plan_.train.ranks);
  }

  fsdp::OptimizerInputs Inputs() const {
    const plan::OptimizerConfig& config = plan_.train.optimizer;
    return {.step = inputs_.step,
            .learning_rate = inputs_.learning_rate,
            .beta1 = config.beta1,
            .beta2 = config.beta2,
            .epsilon = config.epsilon,
            .weight_decay = config.weight_decay,
            .divisor = Contributions(),
            .agreed = norm_->agreed()};
  }

  const plan::JobPlan& plan_;
  RankMemory& memory_;
  const ExecutorCommunicators communicators_;
  RequestBox& requests_;
  link::SharedPage& page_;
  const ExecutorOptions options_;
  device::Device& device_;
  const std::unique_ptr<GradientNorm> norm_;

  const BoundProgram train_;
  std::unique_ptr<BoundProgram> validate_;

  // Of the run in progress: written by the issuing thread while the streams are idle, then by instructions
  // that the program orders.
  RunInputs inputs_;  // a copy: after an error the caller is gone before the streams are
  const BoundProgram* running_ = nullptr;
  bool has_norm_ = false;
  std::unique_ptr<StepRecorder> recorder_;  // of a run that is recorded
  std::vector<device::Event> events_;       // by segment

  std::mutex mu_;
  std::vector<Collective> collectives_;  // of the run in progress, as they were issued; mu_

  device::StreamError poison_;
  // Last: joined before anything that their work uses is gone.
  std::map<StreamKind, std::unique_ptr<device::Stream>> streams_;
};

Executor::Executor(const plan::JobPlan& plan, const std::vector<std::unique_ptr<model::Node>>& nodes,
                   RankMemory& memory, const ExecutorCommunicators& communicators, RequestBox& requests,
                   link::SharedPage& page, Backend& backend, const ExecutorOptions& options)
    : impl_(std::make_unique<Impl>(plan, nodes, memory, communicators, requests, page, backend, options)) {}

Executor::~Executor() = default;

RunResult Executor::Train(const RunInputs& inputs) { return impl_->Run(impl_->train(), inputs); }

RunResult Executor::Validate(const RunInputs& inputs) { return impl_->Run(impl_->validate(), inputs); }

void Executor::Fail(std::exception_ptr error) { impl_->Fail(error); }

std::exception_ptr Executor::Lose(const std::exception_ptr& error) { return impl_->Lose(error); }

}  // namespace tandem::trainer
