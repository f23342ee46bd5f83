#include "tests/oracle/mutations.h"

#include <algorithm>
#include <functional>
#include <limits>
#include <utility>

#include "schedules/passes/passes.h"
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
using schedules::Program;
using schedules::StagePrograms;
using schedules::Wait;

namespace {

// Instruction i comes to stand before what is at `to` (the end: the size). Waits follow their instructions;
// what now points up is dropped.
Program Moved(const Program& program, int i, int to) {
  const int size = static_cast<int>(program.instructions.size());
  std::vector<int> order;
  for (int k = 0; k <= size; ++k) {
    if (k == to) {
      order.push_back(i);
    }
    if (k < size && k != i) {
      order.push_back(k);
    }
  }
  std::vector<int> place(size);
  for (int k = 0; k < size; ++k) {
    place[order[k]] = k;
  }
  Program moved = program;
  for (int k = 0; k < size; ++k) {
    moved.instructions[k] = program.instructions[order[k]];
    std::vector<Wait>& waits = moved.instructions[k].waits;
    for (Wait& wait : waits) {
      wait.instruction = place[wait.instruction];
    }
    std::erase_if(waits, [&](const Wait& wait) { return wait.instruction >= k; });
  }
  return moved;
}

void Remove(Program& program, int i) {
  program.instructions.erase(program.instructions.begin() + i);
  for (Instruction& in : program.instructions) {
    std::erase_if(in.waits, [&](const Wait& wait) { return wait.instruction == i; });
    for (Wait& wait : in.waits) {
      wait.instruction -= wait.instruction > i ? 1 : 0;
    }
  }
}

void Insert(Program& program, const Instruction& instruction, int at) {
  for (Instruction& in : program.instructions) {
    for (Wait& wait : in.waits) {
      wait.instruction += wait.instruction >= at ? 1 : 0;
    }
  }
  program.instructions.insert(program.instructions.begin() + at, instruction);
}

class Mutator {
 public:
  Mutator(const schedules::Outline& outline, const StagePrograms& stage, std::mt19937_64& random)
      : outline_(outline), random_(random), mutant_{"", "", nullptr, stage} {
    static constexpr Program StagePrograms::*kPrograms[] = {&StagePrograms::train,  &StagePrograms::train,
                                                            &StagePrograms::train,  &StagePrograms::begin,
                                                            &StagePrograms::update, &StagePrograms::validate};
    do {
      mutant_.program = kPrograms[Below(std::size(kPrograms))];
    } while ((stage.*mutant_.program).instructions.empty());
  }

  Mutant Run() {
    const StagePrograms original = mutant_.stage;
    while (true) {
      const Kind& kind = Kinds()[Below(Kinds().size())];
      mutant_.kind = kind.name;
      if ((this->*kind.change)()) {
        return std::move(mutant_);
      }
      mutant_.stage = original;
    }
  }

  // A send, receive or norm behind the next one of its kind, or behind any other.
  Mutant MoveExchange() {
    const auto exchanges = [](const Instruction& in) {
      return in.opcode == Opcode::kSend || in.opcode == Opcode::kReceive ||
             in.opcode == Opcode::kGradientNorm;
    };
    mutant_.kind = "move exchange, waits anew";
    const std::optional<int> i = Pick(exchanges);
    if (i) {
      const bool same = Below(2) == 0;
      int to = *i + 1;
      while (to < Size() && !(exchanges(At(to)) && (!same || At(to).opcode == At(*i).opcode))) {
        ++to;
      }
      to = std::min(to + 1, Size());
      const std::string change = "move " + Name(*i) + " to " + std::to_string(to);
      P() = Moved(P(), *i, to);
      Anew(change);
    }
    return std::move(mutant_);
  }

  struct Kind {
    const char* name;
    bool (Mutator::*change)();  // false: nothing of that kind can be done
  };
  static const std::vector<Kind>& Kinds();

 private:
  Program& P() { return mutant_.stage.*mutant_.program; }
  Instruction& At(int i) { return P().instructions[i]; }
  int Size() { return static_cast<int>(P().instructions.size()); }
  int Below(size_t bound) { return static_cast<int>(random_() % bound); }
  std::string Name(int i) { return std::to_string(i) + " (" + ToText(At(i), outline_) + ")"; }
  bool Did(const std::string& change) {
    mutant_.change = P().name + ": " + change;
    return true;
  }

  std::optional<int> Pick(const std::function<bool(const Instruction&)>& which) {
    std::vector<int> found;
    for (int i = 0; i < Size(); ++i) {
      if (which(At(i))) {
        found.push_back(i);
      }
    }
    return found.empty() ? std::nullopt : std::optional<int>(found[Below(found.size())]);
  }
  std::optional<int> Pick(Opcode opcode) {
    return Pick([&](const Instruction& in) { return in.opcode == opcode; });
  }

  // Passes know no locals that nothing touches.
  void DropUntouched() {
    std::vector<int> number(P().buffers.size(), -1);
    for (const Instruction& in : P().instructions) {
      for (const Operand& operand : in.operands) {
        number[operand.buffer] = 0;
      }
    }
    std::vector<Buffer> kept;
    for (size_t b = 0; b < P().buffers.size(); ++b) {
      if (number[b] == 0 || P().buffers[b].life != Life::kLocal) {
        number[b] = static_cast<int>(kept.size());
        kept.push_back(P().buffers[b]);
      }
    }
    P().buffers = std::move(kept);
    for (Instruction& in : P().instructions) {
      for (Operand& operand : in.operands) {
        operand.buffer = number[operand.buffer];
      }
    }
  }

  // All waits and addresses, from the operands.
  bool Anew(const std::string& change) {
    DropUntouched();
    for (Instruction& in : P().instructions) {
      in.waits.clear();
    }
    const int64_t no_budget = std::numeric_limits<int64_t>::max() / 4;
    const schedules::VectorClocks clocks = InsertWaits(no_budget, P());
    int64_t host = 0;
    for (const Buffer& buffer : P().buffers) {
      host = buffer.life != Life::kLocal && IsHost(buffer.kind)
                 ? std::max(host, buffer.address + ExtentOf(buffer))
                 : host;
    }
    const schedules::PersistentBytes ends =
        PlaceLocals(clocks, {mutant_.stage.persistent_bytes, host}, no_budget, nullptr, P());
    mutant_.stage.arena_bytes = std::max(mutant_.stage.arena_bytes, ends.arena);
    mutant_.stage.host_bytes = std::max(mutant_.stage.host_bytes, ends.host);
    return Did(change);
  }

  bool DropAWait(bool of_memory) {
    const auto is_such = [&](const Wait& wait) { return (wait.frees > 0) == of_memory; };
    const std::optional<int> i =
        Pick([&](const Instruction& in) { return std::any_of(in.waits.begin(), in.waits.end(), is_such); });
    if (!i) {
      return false;
    }
    std::vector<Wait>& waits = At(*i).waits;
    int k = Below(waits.size());
    while (!is_such(waits[k])) {
      k = Below(waits.size());
    }
    const int dropped = waits[k].instruction;
    waits.erase(waits.begin() + k);
    return Did("drop the wait for " + Name(dropped) + " of " + Name(*i));
  }
  bool DropWait() { return DropAWait(false); }
  bool DropMemoryWait() { return DropAWait(true); }

  bool MoveWait() {
    const std::optional<int> i = Pick([](const Instruction& in) { return !in.waits.empty(); });
    if (!i) {
      return false;
    }
    Wait& wait = At(*i).waits[Below(At(*i).waits.size())];
    const int old = wait.instruction;
    const int step = Below(2) == 0 ? 1 : -1;
    if (Below(3) == 0) {
      wait.instruction = Below(Size());  // upwards too
    } else {                             // to a neighbour on its stream
      do {
        wait.instruction += step;
      } while (wait.instruction >= 0 && wait.instruction < *i &&
               At(wait.instruction).stream != At(old).stream);
    }
    if (wait.instruction < 0 || wait.instruction == old) {
      return false;
    }
    return Did("wait for " + std::to_string(wait.instruction) + " instead of " + Name(old) + " in " +
               Name(*i));
  }

  bool AddWait() {
    const int i = Below(Size());
    if (i == 0) {
      return false;
    }
    At(i).waits.push_back({Below(i)});
    return Did("one more wait in " + Name(i));
  }

  bool DropInstruction() {
    const int i = Below(Size());
    const std::string change = "drop " + Name(i);
    Remove(P(), i);
    return Did(change);
  }

  bool DoubleInstruction() {
    const int i = Below(Size());
    const int at = i + 1 + Below(Below(2) == 0 ? 1 : Size() - i);
    const std::string change = "double " + Name(i) + " at " + std::to_string(at);
    const Instruction copy = At(i);
    Insert(P(), copy, at);
    return Did(change);
  }

  bool MoveInstruction() {
    const int i = Below(Size());
    const int distance = 2 + Below(Below(2) == 0 ? 6 : Size());
    const int to = std::clamp(Below(2) == 0 ? i + distance : i - distance + 1, 0, Size());
    const std::string change = "move " + Name(i) + " to " + std::to_string(to);
    P() = Moved(P(), i, to);
    return Did(change);
  }

  bool ChangeStream() {
    const int i = Below(Size());
    At(i).stream = Below(P().streams.size());
    return Did("stream " + P().streams[At(i).stream].name + " of " + Name(i));
  }

  bool ChangeCommunicator() {
    const bool any = Below(8) == 0;
    const std::optional<int> i = Pick([&](const Instruction& in) { return any || in.communicator >= 0; });
    if (!i) {
      return false;
    }
    At(*i).communicator = Below(P().communicators.size() + 1) - 1;
    return Did("communicator " + std::to_string(At(*i).communicator) + " of " + Name(*i));
  }

  bool ChangeMicrobatch() {
    const std::optional<int> i = Pick([](const Instruction& in) { return in.microbatch >= 0; });
    if (!i) {
      return false;
    }
    const std::string name = Name(*i);
    At(*i).microbatch = Below(P().num_microbatches + (Below(8) == 0 ? 1 : 0));
    return Did("microbatch " + std::to_string(At(*i).microbatch) + " of " + name);
  }

  bool ChangeTarget() {
    const std::optional<int> i = Pick([](const Instruction& in) { return in.target >= 0; });
    if (!i) {
      return false;
    }
    const std::string name = Name(*i);
    const schedules::TargetKind kind = InfoOf(At(*i).opcode).target;
    At(*i).target = Below(kind == schedules::TargetKind::kNode   ? outline_.nodes.size()
                          : kind == schedules::TargetKind::kUnit ? outline_.units.size()
                                                                 : outline_.values.size());
    return Did("target " + std::to_string(At(*i).target) + " of " + name);
  }

  std::optional<int> WithOperands() {
    return Pick([](const Instruction& in) { return !in.operands.empty(); });
  }

  bool DropOperand() {
    const std::optional<int> i = WithOperands();
    if (!i) {
      return false;
    }
    const int k =
        Below(3) == 0 ? static_cast<int>(At(*i).operands.size()) - 1 : Below(At(*i).operands.size());
    const std::string name = OperandName(P(), At(*i).operands[k]);
    At(*i).operands.erase(At(*i).operands.begin() + k);
    return Did("drop operand " + name + " of " + Name(*i));
  }

  bool AddOperand() {
    const std::optional<int> i = WithOperands();
    const int from = Below(Size());
    if (!i || At(from).operands.empty()) {
      return false;
    }
    const Operand operand = At(from).operands[Below(At(from).operands.size())];
    std::vector<Operand>& operands = At(*i).operands;
    operands.insert(operands.begin() + (Below(2) == 0 ? Below(operands.size() + 1) : operands.size()),
                    operand);
    return Did("operand " + OperandName(P(), operand) + " more in " + Name(*i));
  }

  // The sum over microbatches, or over two passes, forgets what was there; or keeps what was there.
  bool FlipMode() {
    const std::optional<int> i = Pick([](const Instruction& in) {
      return std::any_of(in.operands.begin(), in.operands.end(),
                         [](const Operand& operand) { return operand.mode != Mode::kReads; });
    });
    if (!i) {
      return false;
    }
    std::vector<Operand>& operands = At(*i).operands;
    int k = Below(operands.size());
    while (operands[k].mode == Mode::kReads) {
      k = Below(operands.size());
    }
    operands[k].mode = operands[k].mode == Mode::kAdds ? Mode::kWrites : Mode::kAdds;
    const char* to = operands[k].mode == Mode::kAdds ? "adds to " : "overwrites ";
    return Did(Name(*i) + " " + to + OperandName(P(), operands[k]));
  }

  bool FlipFormer() {
    const std::optional<int> i = Pick([&](const Instruction& in) {
      return std::any_of(in.operands.begin(), in.operands.end(), [&](const Operand& operand) {
        return P().buffers[operand.buffer].life == Life::kRing;
      });
    });
    if (!i) {
      return false;
    }
    std::vector<Operand>& operands = At(*i).operands;
    int k = Below(operands.size());
    while (P().buffers[operands[k].buffer].life != Life::kRing) {
      k = Below(operands.size());
    }
    operands[k].former = !operands[k].former;
    return Did("the other element of " + OperandName(P(), operands[k]) + " in " + Name(*i));
  }

  // Of the same kind: as a rule only another microbatch, gather or part.
  bool ChangeBuffer(bool waits_anew) {
    const std::optional<int> i = WithOperands();
    if (!i) {
      return false;
    }
    Operand& operand = At(*i).operands[Below(At(*i).operands.size())];
    const Buffer& old = P().buffers[operand.buffer];
    if (!old.parts.empty() && Below(3) == 0) {
      operand.part = Below(old.parts.size() + 1) - 1;
    } else {
      const bool any_subject = Below(4) == 0;
      std::vector<BufferId> like;
      for (BufferId b = 0; b < static_cast<int>(P().buffers.size()); ++b) {
        const Buffer& other = P().buffers[b];
        if (b != operand.buffer && other.kind == old.kind && (any_subject || other.subject == old.subject)) {
          like.push_back(b);
        }
      }
      if (like.empty()) {
        return false;
      }
      operand.buffer = like[Below(like.size())];
    }
    const std::string change = "operand " + OperandName(P(), operand) + " in " + Name(*i);
    return waits_anew && IsSound() ? Anew(change) : Did(change);
  }
  bool ChangeOperand() { return ChangeBuffer(false); }
  bool ChangeOperandAnew() { return ChangeBuffer(true); }

  // Passes take ids and parts as they are.
  bool IsSound() {
    return std::all_of(P().instructions.begin(), P().instructions.end(), [&](const Instruction& in) {
      return std::all_of(in.operands.begin(), in.operands.end(), [&](const Operand& operand) {
        return operand.part < static_cast<int>(P().buffers[operand.buffer].parts.size());
      });
    });
  }

  bool MoveAddress() {
    std::vector<Buffer>& buffers = P().buffers;
    const int a = Below(buffers.size());
    const int b = Below(buffers.size());
    if (buffers[a].address == buffers[b].address || IsHost(buffers[a].kind) != IsHost(buffers[b].kind)) {
      return false;
    }
    buffers[a].address = buffers[b].address;
    return Did(buffers[a].name + " to where " + buffers[b].name + " is");
  }

  bool ShiftAddress() {
    std::vector<Buffer>& buffers = P().buffers;
    Buffer& buffer = buffers[Below(buffers.size())];
    buffer.address += (Below(2) == 0 ? 1 : -1) * (1 + Below(8)) * buffer.alignment;
    return Did(buffer.name + " to " + std::to_string(buffer.address));
  }

  // A contribution skipped, doubled or out of order; all that it needs is there and in time.
  static bool Sums(const Instruction& in) {
    return in.opcode == Opcode::kReduceGradients || in.opcode == Opcode::kAccumulate ||
           in.opcode == Opcode::kReduceOuter;
  }

  bool SkipContribution() {
    const std::optional<int> i = Pick(Sums);
    if (!i) {
      return false;
    }
    const std::string change = "skip " + Name(*i);
    Remove(P(), *i);
    return Anew(change);
  }

  bool DoubleContribution() {
    const std::optional<int> i = Pick(Sums);
    if (!i) {
      return false;
    }
    const std::string change = "double " + Name(*i);
    Instruction again = At(*i);
    for (Operand& operand : again.operands) {
      const BufferKind kind = P().buffers[operand.buffer].kind;
      if (kind == BufferKind::kGradients || kind == BufferKind::kFullGradient) {
        operand.mode = operand.mode == Mode::kWrites ? Mode::kAdds : operand.mode;
      }
    }
    again.waits.clear();
    Insert(P(), again, *i + 1);
    return Anew(change);
  }

  bool ReorderContributions() {
    const std::optional<int> a = Pick(Sums);
    const std::optional<int> b = Pick([&](const Instruction& in) {
      return a && in.opcode == At(*a).opcode && in.target == At(*a).target && &in != &At(*a);
    });
    if (!b) {
      return false;
    }
    std::swap(At(*a).operands[0], At(*b).operands[0]);
    // As late as the later of the two contributions.
    const std::string change = Name(*a) + " and " + Name(*b) + " change contributions";
    const int first = std::min(*a, *b);
    const int second = std::max(*a, *b);
    P() = Moved(P(), first, second);
    return Anew(change);
  }

  bool GatherBeforeUpdate() {
    const std::optional<int> step = Pick(Opcode::kOptimizerStep);
    if (!step) {
      return false;
    }
    const std::optional<int> gather = Pick([&](const Instruction& in) {
      return (in.opcode == Opcode::kUnshard || in.opcode == Opcode::kUnshardOuter) &&
             in.target == At(*step).target;
    });
    if (!gather || *gather < *step) {
      return false;
    }
    const std::string change = "move " + Name(*gather) + " before " + Name(*step);
    P() = Moved(P(), *gather, *step);
    return Anew(change);
  }

  bool RepeatPass() {
    const std::optional<int> i = Pick([](const Instruction& in) { return IsNodePass(in.opcode); });
    if (!i) {
      return false;
    }
    const std::string change = "repeat " + Name(*i);
    const Instruction again = At(*i);
    Insert(P(), again, *i + 1);
    return Anew(change);
  }

  bool MoveAnew() {
    const int i = Below(Size());
    const int to = std::clamp(Below(2) == 0 ? i + 2 + Below(6) : i - 1 - Below(6), 0, Size());
    const std::string change = "move " + Name(i) + " to " + std::to_string(to);
    P() = Moved(P(), i, to);
    return Anew(change);
  }

  bool SwapMicrobatches() {
    const int count = P().num_microbatches;
    if (count < 2) {
      return false;
    }
    const int a = Below(count);
    const int b = Below(count);
    if (a == b) {
      return false;
    }
    // The loads of two microbatches: all that follows takes the other's data.
    for (Instruction& in : P().instructions) {
      for (Operand& operand : in.operands) {
        if (P().buffers[operand.buffer].kind == BufferKind::kHostBatch) {
          operand.part = operand.part == a ? b : operand.part == b ? a : operand.part;
        }
      }
    }
    return Did("microbatches " + std::to_string(a) + " and " + std::to_string(b) + " change data");
  }

  const schedules::Outline& outline_;
  std::mt19937_64& random_;
  Mutant mutant_;
};

const std::vector<Mutator::Kind>& Mutator::Kinds() {
  static const std::vector<Kind> kinds = {
      {"drop wait", &Mutator::DropWait},
      {"drop memory wait", &Mutator::DropMemoryWait},
      {"move wait", &Mutator::MoveWait},
      {"add wait", &Mutator::AddWait},
      {"drop instruction", &Mutator::DropInstruction},
      {"double instruction", &Mutator::DoubleInstruction},
      {"move instruction", &Mutator::MoveInstruction},
      {"change stream", &Mutator::ChangeStream},
      {"change communicator", &Mutator::ChangeCommunicator},
      {"change microbatch", &Mutator::ChangeMicrobatch},
      {"change target", &Mutator::ChangeTarget},
      {"drop operand", &Mutator::DropOperand},
      {"add operand", &Mutator::AddOperand},
      {"write or add", &Mutator::FlipMode},
      {"this or former run", &Mutator::FlipFormer},
      {"change operand", &Mutator::ChangeOperand},
      {"change operand, waits anew", &Mutator::ChangeOperandAnew},
      {"address onto another", &Mutator::MoveAddress},
      {"shift address", &Mutator::ShiftAddress},
      {"skip contribution, waits anew", &Mutator::SkipContribution},
      {"double contribution, waits anew", &Mutator::DoubleContribution},
      {"reorder contributions, waits anew", &Mutator::ReorderContributions},
      {"gather before update, waits anew", &Mutator::GatherBeforeUpdate},
      {"repeat pass, waits anew", &Mutator::RepeatPass},
      {"move instruction, waits anew", &Mutator::MoveAnew},
      {"swap microbatches", &Mutator::SwapMicrobatches},
  };
  return kinds;
}

}  // namespace

Mutant Mutate(const schedules::Outline& outline, const StagePrograms& stage, std::mt19937_64& random) {
  return Mutator(outline, stage, random).Run();
}

Mutant MoveExchange(const schedules::Outline& outline, const StagePrograms& stage, std::mt19937_64& random) {
  return Mutator(outline, stage, random).MoveExchange();
}

std::vector<std::string> MutationKinds() {
  std::vector<std::string> names;
  for (const Mutator::Kind& kind : Mutator::Kinds()) {
    names.emplace_back(kind.name);
  }
  return names;
}

}  // namespace tandem::oracle
