// SPDX-License-Identifier: Apache-2.0
#include "tests/oracle/mutations.h"

#include <algorithm>
#include <utility>

#include "schedules/program/text.h"

namespace tandem::oracle {

using schedules::Buffer;
using schedules::BufferId;
using schedules::BufferKind;
using schedules::Instruction;
using schedules::Life;
using schedules::Mode;
using schedules::Opcode;
using schedules::Operand;
using schedules::StagePrograms;
using schedules::Wait;

namespace {

// Each of these changes one thing. False: nothing of that kind can be done.

bool DropAWait(ProgramEdit& e, bool of_memory) {
  const auto is_such = [&](const Wait& wait) { return (wait.frees > 0) == of_memory; };
  const std::optional<int> i =
      e.Pick([&](const Instruction& in) { return std::any_of(in.waits.begin(), in.waits.end(), is_such); });
  if (!i) {
    return false;
  }
  std::vector<Wait>& waits = e.At(*i).waits;
  int k = e.Below(waits.size());
  while (!is_such(waits[k])) {
    k = e.Below(waits.size());
  }
  const int dropped = waits[k].instruction;
  waits.erase(waits.begin() + k);
  return e.Did("drop the wait for " + e.Name(dropped) + " of " + e.Name(*i));
}
bool DropWait(ProgramEdit& e) { return DropAWait(e, false); }
bool DropMemoryWait(ProgramEdit& e) { return DropAWait(e, true); }

bool MoveWait(ProgramEdit& e) {
  const std::optional<int> i = e.Pick([](const Instruction& in) { return !in.waits.empty(); });
  if (!i) {
    return false;
  }
  Wait& wait = e.At(*i).waits[e.Below(e.At(*i).waits.size())];
  const int old = wait.instruction;
  const int step = e.Below(2) == 0 ? 1 : -1;
  if (e.Below(3) == 0) {
    wait.instruction = e.Below(e.Size());  // upwards too
  } else {                                 // to a neighbour on its stream
    do {
      wait.instruction += step;
    } while (wait.instruction >= 0 && wait.instruction < *i &&
             e.At(wait.instruction).stream != e.At(old).stream);
  }
  if (wait.instruction < 0 || wait.instruction == old) {
    return false;
  }
  return e.Did("wait for " + std::to_string(wait.instruction) + " instead of " + e.Name(old) + " in " +
               e.Name(*i));
}

bool AddWait(ProgramEdit& e) {
  const int i = e.Below(e.Size());
  if (i == 0) {
    return false;
  }
  e.At(i).waits.push_back({e.Below(i)});
  return e.Did("one more wait in " + e.Name(i));
}

bool DropInstruction(ProgramEdit& e) {
  const int i = e.Below(e.Size());
  const std::string change = "drop " + e.Name(i);
  e.Remove(i);
  return e.Did(change);
}

bool DoubleInstruction(ProgramEdit& e) {
  const int i = e.Below(e.Size());
  const int at = i + 1 + e.Below(e.Below(2) == 0 ? 1 : e.Size() - i);
  const std::string change = "double " + e.Name(i) + " at " + std::to_string(at);
  const Instruction copy = e.At(i);
  e.Insert(copy, at);
  return e.Did(change);
}

bool MoveInstruction(ProgramEdit& e) {
  const int i = e.Below(e.Size());
  const int distance = 2 + e.Below(e.Below(2) == 0 ? 6 : e.Size());
  const int to = std::clamp(e.Below(2) == 0 ? i + distance : i - distance + 1, 0, e.Size());
  const std::string change = "move " + e.Name(i) + " to " + std::to_string(to);
  e.Move(i, to);
  return e.Did(change);
}

bool ChangeStream(ProgramEdit& e) {
  const int i = e.Below(e.Size());
  e.At(i).stream = e.Below(e.program().streams.size());
  return e.Did("stream " + e.program().streams[e.At(i).stream].name + " of " + e.Name(i));
}

bool ChangeCommunicator(ProgramEdit& e) {
  const bool any = e.Below(8) == 0;
  const std::optional<int> i = e.Pick([&](const Instruction& in) { return any || in.communicator >= 0; });
  if (!i) {
    return false;
  }
  e.At(*i).communicator = e.Below(e.program().communicators.size() + 1) - 1;
  return e.Did("communicator " + std::to_string(e.At(*i).communicator) + " of " + e.Name(*i));
}

bool ChangeMicrobatch(ProgramEdit& e) {
  const std::optional<int> i = e.Pick([](const Instruction& in) { return in.microbatch >= 0; });
  if (!i) {
    return false;
  }
  const std::string name = e.Name(*i);
  e.At(*i).microbatch = e.Below(e.program().num_microbatches + (e.Below(8) == 0 ? 1 : 0));
  return e.Did("microbatch " + std::to_string(e.At(*i).microbatch) + " of " + name);
}

bool ChangeTarget(ProgramEdit& e) {
  const std::optional<int> i = e.Pick([](const Instruction& in) { return in.target >= 0; });
  if (!i) {
    return false;
  }
  const std::string name = e.Name(*i);
  const schedules::TargetKind kind = InfoOf(e.At(*i).opcode).target;
  e.At(*i).target = e.Below(kind == schedules::TargetKind::kNode   ? e.outline().nodes.size()
                            : kind == schedules::TargetKind::kUnit ? e.outline().units.size()
                                                                   : e.outline().values.size());
  return e.Did("target " + std::to_string(e.At(*i).target) + " of " + name);
}

bool DropOperand(ProgramEdit& e) {
  const std::optional<int> i = e.PickWithOperands();
  if (!i) {
    return false;
  }
  const int k =
      e.Below(3) == 0 ? static_cast<int>(e.At(*i).operands.size()) - 1 : e.Below(e.At(*i).operands.size());
  const std::string name = OperandName(e.program(), e.At(*i).operands[k]);
  e.At(*i).operands.erase(e.At(*i).operands.begin() + k);
  return e.Did("drop operand " + name + " of " + e.Name(*i));
}

bool AddOperand(ProgramEdit& e) {
  const std::optional<int> i = e.PickWithOperands();
  const int from = e.Below(e.Size());
  if (!i || e.At(from).operands.empty()) {
    return false;
  }
  const Operand operand = e.At(from).operands[e.Below(e.At(from).operands.size())];
  std::vector<Operand>& operands = e.At(*i).operands;
  operands.insert(operands.begin() + (e.Below(2) == 0 ? e.Below(operands.size() + 1) : operands.size()),
                  operand);
  return e.Did("operand " + OperandName(e.program(), operand) + " more in " + e.Name(*i));
}

// The sum over microbatches, or over two passes, forgets what was there; or keeps what was there.
bool FlipMode(ProgramEdit& e) {
  const std::optional<int> i = e.Pick([](const Instruction& in) {
    return std::any_of(in.operands.begin(), in.operands.end(),
                       [](const Operand& operand) { return operand.mode != Mode::kReads; });
  });
  if (!i) {
    return false;
  }
  std::vector<Operand>& operands = e.At(*i).operands;
  int k = e.Below(operands.size());
  while (operands[k].mode == Mode::kReads) {
    k = e.Below(operands.size());
  }
  operands[k].mode = operands[k].mode == Mode::kAdds ? Mode::kWrites : Mode::kAdds;
  const char* to = operands[k].mode == Mode::kAdds ? "adds to " : "overwrites ";
  return e.Did(e.Name(*i) + " " + to + OperandName(e.program(), operands[k]));
}

bool FlipFormer(ProgramEdit& e) {
  const std::optional<int> i = e.Pick([&](const Instruction& in) {
    return std::any_of(in.operands.begin(), in.operands.end(), [&](const Operand& operand) {
      return e.program().buffers[operand.buffer].life == Life::kRing;
    });
  });
  if (!i) {
    return false;
  }
  std::vector<Operand>& operands = e.At(*i).operands;
  int k = e.Below(operands.size());
  while (e.program().buffers[operands[k].buffer].life != Life::kRing) {
    k = e.Below(operands.size());
  }
  operands[k].former = !operands[k].former;
  return e.Did("the other element of " + OperandName(e.program(), operands[k]) + " in " + e.Name(*i));
}

// Of the same kind: as a rule only another microbatch, gather or part.
bool ChangeBuffer(ProgramEdit& e, bool waits_anew) {
  const std::optional<int> i = e.PickWithOperands();
  if (!i) {
    return false;
  }
  Operand& operand = e.At(*i).operands[e.Below(e.At(*i).operands.size())];
  const Buffer& old = e.program().buffers[operand.buffer];
  if (!old.parts.empty() && e.Below(3) == 0) {
    operand.part = e.Below(old.parts.size() + 1) - 1;
  } else {
    const bool any_subject = e.Below(4) == 0;
    std::vector<BufferId> like;
    for (BufferId b = 0; b < static_cast<int>(e.program().buffers.size()); ++b) {
      const Buffer& other = e.program().buffers[b];
      if (b != operand.buffer && other.kind == old.kind && (any_subject || other.subject == old.subject)) {
        like.push_back(b);
      }
    }
    if (like.empty()) {
      return false;
    }
    operand.buffer = like[e.Below(like.size())];
  }
  const std::string change = "operand " + OperandName(e.program(), operand) + " in " + e.Name(*i);
  return waits_anew && e.IsSound() ? e.Anew(change) : e.Did(change);
}
bool ChangeOperand(ProgramEdit& e) { return ChangeBuffer(e, false); }
bool ChangeOperandAnew(ProgramEdit& e) { return ChangeBuffer(e, true); }

bool MoveAddress(ProgramEdit& e) {
  std::vector<Buffer>& buffers = e.program().buffers;
  const int a = e.Below(buffers.size());
  const int b = e.Below(buffers.size());
  if (buffers[a].address == buffers[b].address || IsHost(buffers[a].kind) != IsHost(buffers[b].kind)) {
    return false;
  }
  buffers[a].address = buffers[b].address;
  return e.Did(buffers[a].name + " to where " + buffers[b].name + " is");
}

bool ShiftAddress(ProgramEdit& e) {
  std::vector<Buffer>& buffers = e.program().buffers;
  Buffer& buffer = buffers[e.Below(buffers.size())];
  buffer.address += (e.Below(2) == 0 ? 1 : -1) * (1 + e.Below(8)) * buffer.alignment;
  return e.Did(buffer.name + " to " + std::to_string(buffer.address));
}

// A contribution skipped, doubled or out of order; all that it needs is there and in time.
bool Sums(const Instruction& in) {
  return in.opcode == Opcode::kReduceGradients || in.opcode == Opcode::kAccumulate ||
         in.opcode == Opcode::kReduceOuter;
}

bool SkipContribution(ProgramEdit& e) {
  const std::optional<int> i = e.Pick(Sums);
  if (!i) {
    return false;
  }
  const std::string change = "skip " + e.Name(*i);
  e.Remove(*i);
  return e.Anew(change);
}

bool DoubleContribution(ProgramEdit& e) {
  const std::optional<int> i = e.Pick(Sums);
  if (!i) {
    return false;
  }
  const std::string change = "double " + e.Name(*i);
  Instruction again = e.At(*i);
  for (Operand& operand : again.operands) {
    const BufferKind kind = e.program().buffers[operand.buffer].kind;
    if (kind == BufferKind::kGradients || kind == BufferKind::kFullGradient) {
      operand.mode = operand.mode == Mode::kWrites ? Mode::kAdds : operand.mode;
    }
  }
  again.waits.clear();
  e.Insert(again, *i + 1);
  return e.Anew(change);
}

bool ReorderContributions(ProgramEdit& e) {
  const std::optional<int> a = e.Pick(Sums);
  const std::optional<int> b = e.Pick([&](const Instruction& in) {
    return a && in.opcode == e.At(*a).opcode && in.target == e.At(*a).target && &in != &e.At(*a);
  });
  if (!b) {
    return false;
  }
  std::swap(e.At(*a).operands[0], e.At(*b).operands[0]);
  // As late as the later of the two contributions.
  const std::string change = e.Name(*a) + " and " + e.Name(*b) + " change contributions";
  const int first = std::min(*a, *b);
  const int second = std::max(*a, *b);
  e.Move(first, second);
  return e.Anew(change);
}

bool GatherBeforeUpdate(ProgramEdit& e) {
  const std::optional<int> step = e.Pick(Opcode::kOptimizerStep);
  if (!step) {
    return false;
  }
  const std::optional<int> gather = e.Pick([&](const Instruction& in) {
    return (in.opcode == Opcode::kUnshard || in.opcode == Opcode::kUnshardOuter) &&
           in.target == e.At(*step).target;
  });
  if (!gather || *gather < *step) {
    return false;
  }
  const std::string change = "move " + e.Name(*gather) + " before " + e.Name(*step);
  e.Move(*gather, *step);
  return e.Anew(change);
}

bool RepeatPass(ProgramEdit& e) {
  const std::optional<int> i = e.Pick([](const Instruction& in) { return IsNodePass(in.opcode); });
  if (!i) {
    return false;
  }
  const std::string change = "repeat " + e.Name(*i);
  const Instruction again = e.At(*i);
  e.Insert(again, *i + 1);
  return e.Anew(change);
}

bool MoveAnew(ProgramEdit& e) {
  const int i = e.Below(e.Size());
  const int to = std::clamp(e.Below(2) == 0 ? i + 2 + e.Below(6) : i - 1 - e.Below(6), 0, e.Size());
  const std::string change = "move " + e.Name(i) + " to " + std::to_string(to);
  e.Move(i, to);
  return e.Anew(change);
}

bool SwapMicrobatches(ProgramEdit& e) {
  const int count = e.program().num_microbatches;
  if (count < 2) {
    return false;
  }
  const int a = e.Below(count);
  const int b = e.Below(count);
  if (a == b) {
    return false;
  }
  // The loads of two microbatches: all that follows takes the other's data.
  for (Instruction& in : e.program().instructions) {
    for (Operand& operand : in.operands) {
      if (e.program().buffers[operand.buffer].kind == BufferKind::kHostBatch) {
        operand.part = operand.part == a ? b : operand.part == b ? a : operand.part;
      }
    }
  }
  return e.Did("microbatches " + std::to_string(a) + " and " + std::to_string(b) + " change data");
}

// An instruction becomes part of a graph, which knows one element of each ring forever.
bool IntoAGraph(ProgramEdit& e) {
  const std::optional<int> i = e.Pick([](const Instruction& in) { return in.segment < 0; });
  if (!i) {
    return false;
  }
  const bool joins = *i > 0 && e.At(*i - 1).segment >= 0;
  e.At(*i).segment = joins ? e.At(*i - 1).segment : e.Size();
  return e.Did("into a graph: " + e.Name(*i));
}

struct Kind {
  const char* name;
  bool (*change)(ProgramEdit&);
};

constexpr Kind kKinds[] = {
    {"drop wait", DropWait},
    {"drop memory wait", DropMemoryWait},
    {"move wait", MoveWait},
    {"add wait", AddWait},
    {"drop instruction", DropInstruction},
    {"double instruction", DoubleInstruction},
    {"move instruction", MoveInstruction},
    {"change stream", ChangeStream},
    {"change communicator", ChangeCommunicator},
    {"change microbatch", ChangeMicrobatch},
    {"change target", ChangeTarget},
    {"drop operand", DropOperand},
    {"add operand", AddOperand},
    {"write or add", FlipMode},
    {"this or former run", FlipFormer},
    {"change operand", ChangeOperand},
    {"change operand, waits rederived", ChangeOperandAnew},
    {"address onto another", MoveAddress},
    {"shift address", ShiftAddress},
    {"skip contribution, waits rederived", SkipContribution},
    {"double contribution, waits rederived", DoubleContribution},
    {"reorder contributions, waits rederived", ReorderContributions},
    {"gather before update, waits rederived", GatherBeforeUpdate},
    {"repeat pass, waits rederived", RepeatPass},
    {"move instruction, waits rederived", MoveAnew},
    {"swap microbatches", SwapMicrobatches},
    {"into a graph", IntoAGraph},
};

}  // namespace

Mutant Mutate(const schedules::Outline& outline, const StagePrograms& stage, std::mt19937_64& random) {
  ProgramEdit edit(outline, stage, random);
  while (true) {
    const Kind& kind = kKinds[edit.Below(std::size(kKinds))];
    edit.mutant().kind = kind.name;
    if (kind.change(edit)) {
      return std::move(edit.mutant());
    }
    edit.mutant().stage = stage;
  }
}

Mutant MoveExchange(const schedules::Outline& outline, const StagePrograms& stage, std::mt19937_64& random) {
  // A send, receive or norm behind the next one of its kind, or behind any other.
  ProgramEdit edit(outline, stage, random);
  const auto exchanges = [](const Instruction& in) {
    return in.opcode == Opcode::kSend || in.opcode == Opcode::kReceive || in.opcode == Opcode::kGradientNorm;
  };
  edit.mutant().kind = "move exchange, waits rederived";
  const std::optional<int> i = edit.Pick(exchanges);
  if (i) {
    const bool same = edit.Below(2) == 0;
    int to = *i + 1;
    while (to < edit.Size() &&
           !(exchanges(edit.At(to)) && (!same || edit.At(to).opcode == edit.At(*i).opcode))) {
      ++to;
    }
    to = std::min(to + 1, edit.Size());
    const std::string change = "move " + edit.Name(*i) + " to " + std::to_string(to);
    edit.Move(*i, to);
    edit.Anew(change);
  }
  return std::move(edit.mutant());
}

std::vector<std::string> MutationKinds() {
  std::vector<std::string> names;
  for (const Kind& kind : kKinds) {
    names.emplace_back(kind.name);
  }
  return names;
}

}  // namespace tandem::oracle
