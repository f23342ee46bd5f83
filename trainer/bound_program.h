// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "comm/communicator.h"
#include "comm/communicators.h"
#include "schedules/program/program.h"

namespace tandem::device {
class Stream;
}

namespace tandem::trainer {

class Binder;
class SegmentGraph;
class StageMemory;

// Runs an instruction, with its operands at fixed addresses, on the current stream.
using Call = std::function<void()>;

// One instruction of a program with its calls for runs of both parities, which differ only in the elements of
// rings that they use.
struct BoundInstruction {
  const schedules::Instruction* instruction = nullptr;
  int index = -1;                                    // index in the program
  std::array<std::shared_ptr<const Call>, 2> calls;  // may be shared with other instructions
};

// Consecutive instructions of one stream, of which only the first waits for other streams, and only the last
// is awaited by others.
struct Segment {
  schedules::StreamId stream = -1;
  std::vector<int> waits;  // indices of segments on other streams
  bool awaited = false;
  bool replayed = false;  // one graph replays the whole segment (Instruction::segment is set)
  // The segment is a host wait: the host issues nothing until the segments in `waits` have ended.
  bool holds_issue = false;
  std::vector<const BoundInstruction*> instructions;
};

// A program with its calls, cut into segments for the streams. Immutable; not movable, because segments point
// to instructions.
class BoundProgram {
 public:
  // `bind` returns the call of an instruction in runs of that parity. `program` outlives this object.
  BoundProgram(const schedules::Program& program,
               const std::function<std::shared_ptr<const Call>(const schedules::Instruction& instruction,
                                                               int parity)>& bind);
  BoundProgram(const BoundProgram&) = delete;
  BoundProgram& operator=(const BoundProgram&) = delete;

  const schedules::Program& program() const { return program_; }

  // In the order of issue.
  const std::vector<BoundInstruction>& instructions() const { return instructions_; }
  const std::vector<Segment>& segments() const { return segments_; }

 private:
  void MakeSegments();

  const schedules::Program& program_;
  std::vector<BoundInstruction> instructions_;
  std::vector<Segment> segments_;
};

// Binds the instructions of a job's programs so that instructions on the same stream that do the same to the
// same memory share one call: in the runs of both parities, which differ only in rings, and in microbatches
// whose buffers alternate between the same addresses. Without sharing, each instruction needs about 5 kB,
// which is gigabytes in a job of a thousand microbatches.
//
// A call can be shared because it keeps nothing between two runs, and a stream runs one call at a time.
// Needed only while programs are bound. Not thread-safe.
class SharedCalls {
 public:
  // Both must outlive this object. The arguments of the binder must outlive the calls.
  SharedCalls(const Binder& binder, const StageMemory& memory) : binder_(binder), memory_(memory) {}

  // Binds an instruction as Binder::Bind does.
  std::shared_ptr<const Call> Get(const schedules::Program& program,
                                  const schedules::Instruction& instruction, int parity,
                                  comm::Communicator* communicator);

  size_t num_calls() const { return num_calls_; }  // number of calls that were bound

 private:
  // Returns a key for everything that the call depends on, or the empty string if the instruction cannot
  // share its call.
  std::string KeyOf(const schedules::Program& program, const schedules::Instruction& instruction, int parity,
                    const comm::Communicator* communicator) const;

  const Binder& binder_;
  const StageMemory& memory_;
  std::map<std::string, std::shared_ptr<const Call>> calls_;
  size_t num_calls_ = 0;
};

// A program with its calls and its position among all programs of the rank, and with the rank's
// communicators, streams and graphs that it uses.
struct PlacedProgram {
  // `communicators` are those of `uses`, in the same order; all programs share them. `first` is the number of
  // instructions in the programs before this one, as the shared page counts them. The executor adds streams
  // and graphs later.
  PlacedProgram(const schedules::Program& program, const comm::Communicators& communicators,
                const std::vector<schedules::CommunicatorUse>& uses, SharedCalls& calls, int first);

  const std::vector<int> uses_of;  // by CommunicatorId: the communicator's index in `communicators`
  const BoundProgram program;
  const int first;
  std::vector<device::Stream*> streams;  // by StreamId
  std::vector<SegmentGraph*> graphs;     // by segment; null if the segment is not replayed
};

}  // namespace tandem::trainer
