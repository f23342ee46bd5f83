#include "schedules_v1/streams.h"

#include "platform/check.h"
#include "schedules_v1/passes.h"

namespace tandem::schedules_v1 {

StreamKind StreamOf(const Outline& outline, const Instruction& instruction) {
  switch (instruction.opcode) {
    case Opcode::kForward:
    case Opcode::kBackward:
    case Opcode::kBackwardInput:
    case Opcode::kBackwardWeight:
      return outline.nodes[instruction.target].stream;
    case Opcode::kUnshard:
      return StreamKind::kGather;
    case Opcode::kReduceGradients:
    case Opcode::kGradientNorm:
      return StreamKind::kReduce;
    case Opcode::kLoadBatch:
    case Opcode::kReshard:
    case Opcode::kOptimizerStep:
    case Opcode::kReport:
    case Opcode::kSnapshot:
      return StreamKind::kCompute;
    case Opcode::kRelease:
      break;
  }
  platform::CheckFailed(__FILE__, __LINE__, "opcode != kRelease",
                        "a release belongs to the stream of the first write");
}

Communicator CommunicatorOf(Opcode opcode) {
  switch (opcode) {
    case Opcode::kUnshard:
      return Communicator::kGather;
    case Opcode::kReduceGradients:
      return Communicator::kReduce;
    case Opcode::kGradientNorm:
      return Communicator::kNorm;
    default:
      return Communicator::kNone;
  }
}

void AssignStreams(const Outline& outline, Program& program) {
  for (Instruction& instruction : program.instructions) {
    instruction.stream = StreamOf(outline, instruction);
    instruction.communicator = CommunicatorOf(instruction.opcode);
  }
}

}  // namespace tandem::schedules_v1
