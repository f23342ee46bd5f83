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

// Runs an instruction on its stream. It is bound to tensors at fixed addresses.
using Call = std::function<void()>;

// One instruction of a program, bound once for each parity of runs. The two differ only in the elements of
// rings.
struct BoundInstruction {
  const schedules::Instruction* instruction = nullptr;
  int index = -1;                                    // index in the program
  std::array<std::shared_ptr<const Call>, 2> calls;  // may be shared with other instructions
};

// Consecutive instructions of one stream. Only the first waits for other streams, and other streams wait only
// for the last.
struct Segment {
  schedules::StreamId stream = -1;
  std::vector<int> waits;  // indices of segments on other streams
  bool awaited = false;
  bool replayed = false;  // Instruction::segment is set: one graph replays the whole segment
  // The segment is a host wait: nothing is issued until what it waits for has ended.
  bool holds_issue = false;
  std::vector<const BoundInstruction*> instructions;
};

// A program with its calls, cut into segments that are handed to streams. Immutable; not movable, because
// segments point to instructions.
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
// whose buffers alternate between the same addresses. Without sharing, each instruction has about 5 kB of
// tensors, which is gigabytes in a job of a thousand microbatches.
//
// A call can be shared because it keeps nothing between two runs, and a stream runs one call at a time.
// Needed only while programs are bound. Not thread-safe.
class SharedCalls {
 public:
  // Both outlive this object. What the calls need (Binder) must outlive the calls.
  SharedCalls(const Binder& binder, const StageMemory& memory) : binder_(binder), memory_(memory) {}

  // Binds an instruction as Binder::Bind does.
  std::shared_ptr<const Call> Get(const schedules::Program& program,
                                  const schedules::Instruction& instruction, int parity,
                                  comm::Communicator* communicator);

  size_t num_calls() const { return num_calls_; }  // number of calls that were bound

 private:
  // Identifies everything that the call depends on. Empty if it depends on more than that, so that the
  // instruction needs a call of its own.
  std::string KeyOf(const schedules::Program& program, const schedules::Instruction& instruction, int parity,
                    const comm::Communicator* communicator) const;

  const Binder& binder_;
  const StageMemory& memory_;
  std::map<std::string, std::shared_ptr<const Call>> calls_;
  size_t num_calls_ = 0;
};

// A program with its calls, its communicators, streams and graphs among those of the rank, and its place
// among all programs of the rank.
struct PlacedProgram {
  // `communicators` are those of `uses`, in this order, and are shared by all programs. `first` is the number
  // of instructions in the programs before it, as the shared page counts them. Streams and graphs are added
  // once the rank has them.
  PlacedProgram(const schedules::Program& program, const comm::Communicators& communicators,
                const std::vector<schedules::CommunicatorUse>& uses, SharedCalls& calls, int first);

  const std::vector<int> uses_of;  // by CommunicatorId, its index among all
  const BoundProgram program;
  const int first;
  std::vector<device::Stream*> streams;  // by StreamId
  std::vector<SegmentGraph*> graphs;     // by segment; null if it is not replayed
};

}  // namespace tandem::trainer
