#include "tests/schedules/mutations.h"

#include <algorithm>
#include <cstdlib>
#include <functional>
#include <optional>
#include <utility>
#include <vector>

#include "schedules_v1/access.h"
#include "schedules_v1/passes.h"
#include "schedules_v1/sequential.h"
#include "schedules_v1/text.h"
#include "tests/schedules/program_edits.h"

namespace tandem::schedules_v1 {

namespace {

class Mutator {
 public:
  Mutator(const Outline& outline, const Program& program, std::mt19937_64& random)
      : outline_(outline), program_(program), random_(random) {}

  Mutant Mutate() {
    while (true) {
      const Kind& kind = Kinds()[Below(Kinds().size())];
      // One opcode at a time: releases would drown the others.
      memory_ = kMemory[Below(std::size(kMemory))];
      if (std::optional<Mutant> mutant = (this->*kind.change)()) {
        mutant->kind = NameOf(kind, memory_);
        return *std::move(mutant);
      }
    }
  }

  static std::vector<std::string> KindNames() {
    std::vector<std::string> names;
    for (const Kind& kind : Kinds()) {
      for (const Opcode opcode : kMemory) {
        if (kind.of_memory || opcode == kMemory[0]) {
          names.push_back(NameOf(kind, opcode));
        }
      }
    }
    return names;
  }

  Mutant MoveMeeting() {
    const int i = *Pick(Communicates);
    const int next = Next(i, [&](const Instruction& in) { return in.communicator == At(i).communicator; });
    return {"move meeting",
            "move " + Name(i) + " to " + std::to_string(next) + ", with the waits that this needs",
            WithWaitsOf(Moved(program_, i, std::min(next + 1, size())))};
  }

  std::pair<Mutant, Mutant> OpposeMeetings() {
    const int i = *Pick(Communicates);
    const int next = Next(
        i, [&](const Instruction& in) { return Communicates(in) && in.communicator != At(i).communicator; });
    if (next == size()) {
      return {{"oppose meetings", "nothing", program_}, {"oppose meetings", "nothing", program_}};
    }
    Mutant in_order{"oppose meetings", Name(next) + " waits for " + Name(i), program_};
    AddWait(in_order.program, next, i);
    Mutant reversed{"oppose meetings", Name(i) + " comes after " + Name(next) + " and waits for it",
                    WithWaitsOf(Moved(program_, next, i))};
    AddWait(reversed.program, i + 1, i);
    return {std::move(in_order), std::move(reversed)};
  }

 private:
  struct Kind {
    const char* name;
    std::optional<Mutant> (Mutator::*change)();
    bool of_memory = false;  // of an opcode of kMemory, which its name ends in
  };
  static const std::vector<Kind>& Kinds();
  static constexpr Opcode kMemory[] = {Opcode::kUnshard, Opcode::kReshard, Opcode::kReduceGradients,
                                       Opcode::kRelease};

  static std::string NameOf(const Kind& kind, Opcode opcode) {
    return kind.of_memory ? std::string(kind.name) + " " + ToText(opcode) : kind.name;
  }

  static bool Communicates(const Instruction& in) { return in.communicator != Communicator::kNone; }

  static void AddWait(Program& program, int i, int wait) {
    std::vector<int>& waits = program.instructions[i].waits;
    if (std::find(waits.begin(), waits.end(), wait) == waits.end()) {
      waits.push_back(wait);
      std::sort(waits.begin(), waits.end());
    }
  }

  // The first after i for which `which` holds; the size if there is none.
  int Next(int i, const std::function<bool(const Instruction&)>& which) const {
    do {
      ++i;
    } while (i < size() && !which(At(i)));
    return i;
  }

  Program WithWaitsOf(Program program) const {
    for (Instruction& instruction : program.instructions) {
      instruction.waits.clear();
    }
    InsertWaits(outline_, program);
    return program;
  }

  size_t Below(size_t bound) { return random_() % bound; }
  int size() const { return static_cast<int>(program_.instructions.size()); }
  const Instruction& At(int i) const { return program_.instructions[i]; }
  std::string Name(int i) const { return std::to_string(i) + " (" + ToText(At(i), outline_) + ")"; }

  // An instruction for which `which` holds.
  std::optional<int> Pick(const std::function<bool(const Instruction&)>& which) {
    std::vector<int> found;
    for (int i = 0; i < size(); ++i) {
      if (which(At(i))) {
        found.push_back(i);
      }
    }
    return found.empty() ? std::nullopt : std::optional<int>(found[Below(found.size())]);
  }

  std::optional<int> PickMemory() {
    return Pick([this](const Instruction& instruction) { return instruction.opcode == memory_; });
  }

  // The program with one instruction changed.
  Mutant With(int i, const std::string& change, const Instruction& instruction) {
    Mutant mutant{"", change + " of " + Name(i), program_};
    mutant.program.instructions[i] = instruction;
    return mutant;
  }

  std::optional<Mutant> DropWait() {
    const std::optional<int> i = Pick([](const Instruction& in) { return !in.waits.empty(); });
    if (!i) {
      return std::nullopt;
    }
    Instruction changed = At(*i);
    const size_t k = Below(changed.waits.size());
    const std::string change = "drop the wait for " + Name(changed.waits[k]);
    changed.waits.erase(changed.waits.begin() + static_cast<int64_t>(k));
    return With(*i, change, changed);
  }

  std::optional<Mutant> MoveWait() {
    const std::optional<int> i = Pick([](const Instruction& in) { return !in.waits.empty(); });
    if (!i) {
      return std::nullopt;
    }
    Instruction changed = At(*i);
    int& wait = changed.waits[Below(changed.waits.size())];
    const int old = wait;
    switch (Below(3)) {
      case 0:  // anywhere before
        wait = static_cast<int>(Below(*i));
        break;
      case 1: {  // to a neighbour on the same stream
        const int step = Below(2) == 0 ? 1 : -1;
        do {
          wait += step;
        } while (wait >= 0 && wait < *i && At(wait).stream != At(old).stream);
        break;
      }
      default:  // anywhere at all
        wait = static_cast<int>(Below(size()));
    }
    if (wait < 0 || wait == old) {
      return std::nullopt;
    }
    const std::string change = "wait for " + Name(wait) + " instead of " + Name(old);
    std::sort(changed.waits.begin(), changed.waits.end());
    return With(*i, change, changed);
  }

  std::optional<Mutant> AddAnyWait() {
    const int i = 1 + static_cast<int>(Below(size() - 1));
    const int wait = static_cast<int>(Below(i));
    Instruction changed = At(i);
    if (std::find(changed.waits.begin(), changed.waits.end(), wait) != changed.waits.end()) {
      return std::nullopt;
    }
    changed.waits.push_back(wait);
    std::sort(changed.waits.begin(), changed.waits.end());
    return With(i, "one more wait, for " + Name(wait) + ",", changed);
  }

  std::optional<Mutant> DropMemory() {
    const std::optional<int> i = PickMemory();
    return i ? std::optional<Mutant>({"", "drop " + Name(*i), Without(program_, *i)}) : std::nullopt;
  }

  std::optional<Mutant> DoubleMemory() {
    const std::optional<int> i = PickMemory();
    if (!i) {
      return std::nullopt;
    }
    const int j = *i + 1 + static_cast<int>(Below(Below(2) == 0 ? 1 : size() - *i));
    return Mutant{"", "double " + Name(*i) + " at " + std::to_string(j), Doubled(program_, *i, j)};
  }

  Mutant Move(int i) {
    const int distance = 2 + static_cast<int>(Below(Below(2) == 0 ? 6 : size()));
    const int j = std::clamp(Below(2) == 0 ? i + distance : i - distance + 1, 0, size());
    return {"", "move " + Name(i) + " to " + std::to_string(j), Moved(program_, i, j)};
  }

  std::optional<Mutant> MoveMemory() {
    const std::optional<int> i = PickMemory();
    return i ? std::optional<Mutant>(Move(*i)) : std::nullopt;
  }

  std::optional<Mutant> MoveAny() { return Move(static_cast<int>(Below(size()))); }

  std::optional<Mutant> SwapNeighbours() {
    const int i = static_cast<int>(Below(size() - 1));
    return Mutant{"", "swap " + Name(i) + " and " + Name(i + 1), Moved(program_, i + 1, i)};
  }

  const std::vector<int>& Counts(SlotRole role) const {
    return role == SlotRole::kParameters ? program_.parameter_slots : program_.gradient_slots;
  }

  std::optional<Mutant> ChangeSlot() {
    const std::optional<int> i = Pick([](const Instruction& in) { return !in.slots.empty(); });
    if (!i) {
      return std::nullopt;
    }
    Instruction changed = At(*i);
    SlotUse& slot = changed.slots[Below(changed.slots.size())];
    if (Below(3) == 0) {
      slot.size_class = static_cast<int>(Below(Counts(slot.role).size()));
    }
    // One beyond the end, now and then.
    slot.index = static_cast<int>(Below(Counts(slot.role)[slot.size_class] + (Below(8) == 0 ? 1 : 0)));
    return With(*i, "slot " + ToText(slot), changed);
  }

  // From an Unshard to its Reshard, or from the first contribution to the reduction: another slot of the
  // class.
  std::optional<Mutant> RenameLease() {
    const std::optional<int> first = Pick([](const Instruction& in) { return !in.slots.empty(); });
    if (!first) {
      return std::nullopt;
    }
    const SlotUse old = At(*first).slots[Below(At(*first).slots.size())];
    const int count = Counts(old.role)[old.size_class];
    Mutant mutant{"", "", program_};
    const int index = static_cast<int>(Below(count + 1));
    if (index == count) {  // one slot more than there was
      (old.role == SlotRole::kParameters ? mutant.program.parameter_slots
                                         : mutant.program.gradient_slots)[old.size_class] += 1;
    }
    const Opcode opens = old.role == SlotRole::kParameters ? Opcode::kUnshard : Opcode::kBackward;
    const Opcode closes = old.role == SlotRole::kParameters ? Opcode::kReshard : Opcode::kReduceGradients;
    int begin = *first;
    const auto uses = [&](int i) {
      return std::find(At(i).slots.begin(), At(i).slots.end(), old) != At(i).slots.end();
    };
    if (At(begin).opcode != opens) {
      while (begin > 0 && !(uses(begin - 1) && At(begin - 1).opcode == closes)) {
        --begin;
      }
    }
    int end = begin;
    while (end < size()) {
      for (SlotUse& slot : mutant.program.instructions[end].slots) {
        if (slot == old) {
          slot.index = index;
        }
      }
      if (uses(end) && At(end).opcode == closes) {
        break;
      }
      ++end;
    }
    mutant.change = "rename slot " + ToText(old) + " of " + outline_.units[old.unit].name + " from " +
                    std::to_string(begin) + " to " + std::to_string(end) + " to index " +
                    std::to_string(index);
    return mutant;
  }

  std::optional<Mutant> ChangeStream() {
    // Every stream, but sooner one that is in use.
    static constexpr StreamKind kStreams[] = {
        StreamKind::kCompute, StreamKind::kGather, StreamKind::kReduce, StreamKind::kDispatch,
        StreamKind::kCompute, StreamKind::kSend,   StreamKind::kGather, StreamKind::kReduce};
    const int i = static_cast<int>(Below(size()));
    Instruction changed = At(i);
    changed.stream = kStreams[Below(std::size(kStreams))];
    return With(i, std::string("stream ") + ToText(changed.stream), changed);
  }

  std::optional<Mutant> ChangeCommunicator() {
    const bool any = Below(8) == 0;
    const std::optional<int> i =
        Pick([&](const Instruction& in) { return any || in.communicator != Communicator::kNone; });
    if (!i) {
      return std::nullopt;
    }
    Instruction changed = At(*i);
    changed.communicator = static_cast<Communicator>(Below(4));
    return With(*i, std::string("communicator ") + ToText(changed.communicator), changed);
  }

  std::optional<Mutant> ChangeMicrobatch() {
    const std::optional<int> i = Pick([](const Instruction& in) { return in.microbatch >= 0; });
    if (!i) {
      return std::nullopt;
    }
    Instruction changed = At(*i);
    changed.microbatch = static_cast<int>(Below(program_.num_microbatches + (Below(8) == 0 ? 1 : 0)));
    return With(*i, "microbatch " + std::to_string(changed.microbatch), changed);
  }

  // Which unit, and so which parts, a slot is used for.
  std::optional<Mutant> ChangeUnit() {
    const std::optional<int> i =
        Pick([](const Instruction& in) { return TargetsUnit(in.opcode) || !in.slots.empty(); });
    if (!i) {
      return std::nullopt;
    }
    Instruction changed = At(*i);
    const UnitId unit = static_cast<UnitId>(Below(outline_.units.size()));
    std::string change = "unit " + outline_.units[unit].name;
    if (TargetsUnit(changed.opcode)) {
      changed.target = unit;
      if (!changed.slots.empty() && Below(4) != 0) {
        changed.slots.front().unit = unit;
      }
    } else if (changed.slots.size() > 1 && Below(2) == 0) {
      const size_t a = Below(changed.slots.size());
      const size_t b = Below(changed.slots.size());
      std::swap(changed.slots[a].unit, changed.slots[b].unit);
      if (changed.slots[a].role != changed.slots[b].role || Below(2) == 0) {
        std::swap(changed.slots[a], changed.slots[b]);
      }
      change = "two slots swapped";
    } else {
      changed.slots[Below(changed.slots.size())].unit = unit;
    }
    return With(*i, change, changed);
  }

  std::optional<Mutant> FlipMode() {
    const std::optional<int> i = Pick([](const Instruction& in) {
      return !in.add_value_gradients.empty() || !in.add_parameter_gradients.empty();
    });
    if (!i) {
      return std::nullopt;
    }
    Instruction changed = At(*i);
    const size_t values = changed.add_value_gradients.size();
    const size_t k = Below(values + changed.add_parameter_gradients.size());
    if (k < values) {
      changed.add_value_gradients[k].flip();
    } else {
      changed.add_parameter_gradients[k - values].flip();
    }
    return With(*i, "overwrite or add", changed);
  }

  // A builder's mistake that unit and slot do not show where the node has no parameters.
  std::optional<Mutant> RepeatPass() {
    const std::optional<int> i = Pick([](const Instruction& in) { return TargetsNode(in.opcode); });
    Mutant mutant{"", "repeat " + Name(*i), Doubled(program_, *i, *i + 1)};
    for (Instruction& instruction : mutant.program.instructions) {
      instruction.add_value_gradients.clear();
      instruction.add_parameter_gradients.clear();
    }
    ChooseGradientModes(outline_, mutant.program);
    mutant.program = WithWaitsOf(std::move(mutant.program));
    return mutant;
  }

  const Outline& outline_;
  const Program& program_;
  std::mt19937_64& random_;
  Opcode memory_ = kMemory[0];  // what a kind of_memory changes
};

const std::vector<Mutator::Kind>& Mutator::Kinds() {
  static const std::vector<Kind> kinds = {
      {"drop wait", &Mutator::DropWait},
      {"move wait", &Mutator::MoveWait},
      {"add wait", &Mutator::AddAnyWait},
      {"drop", &Mutator::DropMemory, /*of_memory=*/true},
      {"double", &Mutator::DoubleMemory, /*of_memory=*/true},
      {"move", &Mutator::MoveMemory, /*of_memory=*/true},
      {"move anything", &Mutator::MoveAny},
      {"swap neighbours", &Mutator::SwapNeighbours},
      {"change slot", &Mutator::ChangeSlot},
      {"rename lease", &Mutator::RenameLease},
      {"change stream", &Mutator::ChangeStream},
      {"change communicator", &Mutator::ChangeCommunicator},
      {"change microbatch", &Mutator::ChangeMicrobatch},
      {"change unit or part", &Mutator::ChangeUnit},
      {"overwrite or add", &Mutator::FlipMode},
      {"repeat pass", &Mutator::RepeatPass},
  };
  return kinds;
}

}  // namespace

Mutant Mutate(const Outline& outline, const Program& program, std::mt19937_64& random) {
  return Mutator(outline, program, random).Mutate();
}

std::vector<std::string> MutationKinds() { return Mutator::KindNames(); }

Mutant Reorder(const Outline& outline, const FsdpOptions& options, int num_microbatches,
               std::mt19937_64& random) {
  Mutant mutant{"reorder", "", BuildSequential(outline, num_microbatches)};
  std::vector<Instruction>& instructions = mutant.program.instructions;
  const int size = static_cast<int>(instructions.size());
  if (random() % 4 == 0) {
    const int a = static_cast<int>(random() % num_microbatches);
    const int b = static_cast<int>(random() % num_microbatches);
    for (Instruction& instruction : instructions) {
      const int old = instruction.microbatch;
      instruction.microbatch = old == a ? b : old == b ? a : old;
    }
    mutant.change = "microbatches " + std::to_string(a) + " and " + std::to_string(b) + " change places";
  } else {
    const int i = static_cast<int>(random() % size);
    const int distance = 1 + static_cast<int>(random() % 5);
    const int j = random() % 2 == 0 ? std::min(i + distance + 1, size) : std::max(i - distance, 0);
    mutant.change = "issue " + ToText(instructions[i], outline) + " " + std::to_string(std::abs(i - j)) +
                    (j < i ? " earlier" : " later");
    mutant.program = Moved(mutant.program, i, j);
  }
  InsertFsdp(outline, options.prefetch, mutant.program);
  AssignStreams(outline, mutant.program);
  InsertReleases(outline, mutant.program);
  ChooseGradientModes(outline, mutant.program);
  AssignSlots(outline, options.unit_parameter_slot_bytes, options.unit_gradient_slot_bytes, mutant.program);
  InsertWaits(outline, mutant.program);
  return mutant;
}

Mutant MoveMeeting(const Outline& outline, const Program& program, std::mt19937_64& random) {
  return Mutator(outline, program, random).MoveMeeting();
}

std::pair<Mutant, Mutant> OpposeMeetings(const Outline& outline, const Program& program,
                                         std::mt19937_64& random) {
  return Mutator(outline, program, random).OpposeMeetings();
}

}  // namespace tandem::schedules_v1
