#include "schedules/interpreter.h"

#include <array>
#include <functional>
#include <random>
#include <utility>

#include "absl/hash/hash.h"
#include "absl/strings/str_cat.h"
#include "schedules/access.h"
#include "schedules/text.h"

namespace tandem::schedules {
namespace {

constexpr int kNumStreams = 5;

bool Communicates(Opcode opcode) {
  return opcode == Opcode::kUnshard || opcode == Opcode::kReduceGradients || opcode == Opcode::kGradientNorm;
}

operations::PassKind KindOf(Opcode opcode) {
  switch (opcode) {
    case Opcode::kForward:
      return operations::PassKind::kForward;
    case Opcode::kBackwardInput:
      return operations::PassKind::kBackwardInput;
    case Opcode::kBackwardWeight:
      return operations::PassKind::kBackwardWeight;
    default:
      return operations::PassKind::kBackward;
  }
}

// What a cell holds. Gradient slots hold a unit's parts, everything else one hash.
struct Content {
  enum class State : uint8_t { kNever, kHeld, kReleased };
  State state = State::kNever;
  Hash hash = 0;
  UnitId unit = -1;
  std::vector<Hash> parts;  // 0: not written
};

struct InFlight {
  int instruction = -1;  // -1: none
  bool torn = false;
  int meeting = -1;          // ordinal on its communicator
  std::vector<Hash> inputs;  // read when it started
};

// A collective, from the first rank that starts it.
struct Meeting {
  int num_started = 0;
  std::vector<const InFlight*> of_ranks;
  std::vector<int> instructions;  // by rank
};

struct RankRun {
  int position = -1;  // of the program in the sequence; the sequence's length: ended
  std::vector<bool> done;
  std::array<std::vector<int>, kNumStreams> queues;
  std::array<size_t, kNumStreams> next{};
  std::array<InFlight, kNumStreams> in_flight;
  std::array<int, kNumCommunicators> num_meetings{};
  std::vector<Content> cells;
  bool takes_norm = false;  // the program has a GradientNorm
  std::vector<Hash> reports;
  std::vector<Hash> snapshots;
};

struct Event {
  int rank = -1;
  int stream = -1;
  bool finish = false;
};

}  // namespace

class Interpreter::Run {
 public:
  // Chooses one of the events; none of them: -1.
  using Choose = std::function<int(const std::vector<Event>&)>;

  explicit Run(const Interpreter& interpreter)
      : interpreter_(interpreter), outline_(interpreter.outline_), ranks_(interpreter.ranks_.size()) {
    for (int r = 0; r < static_cast<int>(ranks_.size()); ++r) {
      RankRun& rank = ranks_[r];
      int num_cells = 0;
      for (const Placement* placement : interpreter.placements_[r]) {
        num_cells = std::max(num_cells, placement->num_cells());
        if (!placement->fault().empty()) {
          Fault(absl::StrCat("rank ", r, " cannot issue ", placement->fault()));
        }
      }
      rank.cells.resize(num_cells);
      for (UnitId unit = 0; unit < static_cast<int>(outline_.units.size()); ++unit) {
        const Placement& first = *interpreter.placements_[r].front();
        rank.cells[first.Weights(unit)] = Held(operations::InitialWeights(r, unit));
        rank.cells[first.OptimizerState(unit)] = Held(operations::InitialOptimizerState(r, unit));
      }
      NextProgram(r);
    }
  }

  RunResult Finish(const Choose& choose) {
    std::vector<Event> events;
    while (result_.kind == RunResult::Kind::kEnded) {
      FindEvents(events);
      const int chosen = events.empty() ? -1 : choose(events);
      if (chosen < 0) {
        break;
      }
      const Event event = events[chosen];
      if (event.finish) {
        FinishInstruction(event.rank, event.stream);
      } else {
        StartInstruction(event.rank, event.stream);
      }
    }
    if (result_.kind == RunResult::Kind::kEnded) {
      End();
    }
    return std::move(result_);
  }

  int position(int rank) const { return ranks_[rank].position; }
  int HeadOf(const Event& event) const {
    const RankRun& rank = ranks_[event.rank];
    return rank.queues[event.stream][rank.next[event.stream]];
  }
  bool IsDone(int rank, int i) const { return ranks_[rank].done[i]; }

 private:
  static Content Held(Hash hash) { return {.state = Content::State::kHeld, .hash = hash}; }

  const Program& ProgramOf(int r) const { return *interpreter_.ranks_[r][ranks_[r].position]; }
  const Placement& PlacementOf(int r) const { return *interpreter_.placements_[r][ranks_[r].position]; }
  std::string Describe(int r, int i) const {
    return absl::StrCat("rank ", r, ": ", ProgramOf(r).name, " ", i, " (",
                        ToText(ProgramOf(r).instructions[i], outline_), ")");
  }

  void Fault(const std::string& what) {
    if (result_.kind == RunResult::Kind::kEnded) {
      result_ = {RunResult::Kind::kFault, what, {}};
    }
  }

  // What was never seen before.
  Hash Torn() { return absl::HashOf(uint64_t{0x746f726e}, ++num_torn_); }

  void NextProgram(int r) {
    RankRun& rank = ranks_[r];
    do {
      ++rank.position;
      if (rank.position == static_cast<int>(interpreter_.ranks_[r].size())) {
        return;
      }
    } while (ProgramOf(r).instructions.empty());
    const Program& program = ProgramOf(r);
    for (auto& queue : rank.queues) {
      queue.clear();
    }
    rank.takes_norm = false;
    for (int i = 0; i < static_cast<int>(program.instructions.size()); ++i) {
      rank.queues[static_cast<int>(program.instructions[i].stream)].push_back(i);
      rank.takes_norm |= program.instructions[i].opcode == Opcode::kGradientNorm;
    }
    rank.next.fill(0);
    rank.done.assign(program.instructions.size(), false);
    for (size_t cell = PlacementOf(r).num_lasting_cells(); cell < rank.cells.size(); ++cell) {
      rank.cells[cell] = {};
    }
  }

  bool IsReady(int r, int i) const {
    for (const int wait : ProgramOf(r).instructions[i].waits) {
      if (!ranks_[r].done[wait]) {
        return false;
      }
    }
    return true;
  }

  void FindEvents(std::vector<Event>& events) const {
    events.clear();
    for (int r = 0; r < static_cast<int>(ranks_.size()); ++r) {
      const RankRun& rank = ranks_[r];
      if (rank.position == static_cast<int>(interpreter_.ranks_[r].size())) {
        continue;
      }
      for (int stream = 0; stream < kNumStreams; ++stream) {
        const InFlight& in_flight = rank.in_flight[stream];
        if (in_flight.instruction >= 0) {
          if (in_flight.meeting < 0 || MeetingOf(r, in_flight).num_started == NumRanks()) {
            events.push_back({r, stream, true});
          }
        } else if (rank.next[stream] < rank.queues[stream].size() &&
                   IsReady(r, rank.queues[stream][rank.next[stream]])) {
          events.push_back({r, stream, false});
        }
      }
    }
  }

  int NumRanks() const { return static_cast<int>(ranks_.size()); }
  const Meeting& MeetingOf(int r, const InFlight& in_flight) const {
    const Communicator communicator = ProgramOf(r).instructions[in_flight.instruction].communicator;
    return meetings_[static_cast<int>(communicator)][in_flight.meeting];
  }

  void StartInstruction(int r, int stream) {
    RankRun& rank = ranks_[r];
    InFlight& in_flight = rank.in_flight[stream];
    const int i = rank.queues[stream][rank.next[stream]];
    in_flight = {.instruction = i};
    for (const UnorderedPair& pair : PlacementOf(r).unordered()) {
      if (pair.earlier != i && pair.later != i) {
        continue;
      }
      for (InFlight& other : rank.in_flight) {
        if (other.instruction == (pair.earlier == i ? pair.later : pair.earlier)) {
          in_flight.torn |= pair.earlier == i ? pair.earlier_torn : pair.later_torn;
          other.torn |= pair.earlier == i ? pair.later_torn : pair.earlier_torn;
        }
      }
    }
    Read(r, i, in_flight.inputs);
    const Instruction& instruction = ProgramOf(r).instructions[i];
    if (Communicates(instruction.opcode)) {
      const int communicator = static_cast<int>(instruction.communicator);
      in_flight.meeting = rank.num_meetings[communicator]++;
      std::vector<Meeting>& meetings = meetings_[communicator];
      if (in_flight.meeting == static_cast<int>(meetings.size())) {
        meetings.push_back({0, std::vector<const InFlight*>(ranks_.size(), nullptr),
                            std::vector<int>(ranks_.size(), -1)});
      }
      Meeting& meeting = meetings[in_flight.meeting];
      meeting.of_ranks[r] = &in_flight;
      meeting.instructions[r] = i;
      if (++meeting.num_started == NumRanks()) {
        Meet(meeting);
      }
    }
  }

  // All ranks have started it: they must mean the same, and each gets what the others brought.
  void Meet(Meeting& meeting) {
    const Instruction& first = ProgramOf(0).instructions[meeting.instructions[0]];
    std::vector<std::vector<Hash>> inputs;
    for (int r = 0; r < NumRanks(); ++r) {
      const Instruction& other = ProgramOf(r).instructions[meeting.instructions[r]];
      const bool same = first.opcode == other.opcode && first.target == other.target;
      if (!same) {
        Fault(absl::StrCat(Describe(0, meeting.instructions[0]), " meets ",
                           Describe(r, meeting.instructions[r])));
        return;
      }
      inputs.push_back(meeting.of_ranks[r]->inputs);
      if (meeting.of_ranks[r]->torn) {
        inputs.back().assign(inputs.back().size(), Torn());
      }
    }
    Hash result = 0;
    std::vector<Hash> all;
    for (const std::vector<Hash>& of_rank : inputs) {
      all.insert(all.end(), of_rank.begin(), of_rank.end());
    }
    if (first.opcode == Opcode::kUnshard) {
      result = operations::Gather(first.target, all);
    } else if (first.opcode == Opcode::kReduceGradients) {
      result = operations::Reduction(all);
    } else {
      result = operations::Norm(all);
    }
    for (int r = 0; r < NumRanks(); ++r) {
      const_cast<InFlight*>(meeting.of_ranks[r])->inputs = {result};
    }
  }

  Hash ReadCell(int r, int i, Cell cell, const char* what) {
    const Content& content = ranks_[r].cells[cell];
    if (content.state != Content::State::kHeld) {
      Fault(absl::StrCat(Describe(r, i), " reads ", what,
                         content.state == Content::State::kNever ? " that nothing has written"
                                                                 : " that was released or overwritten"));
    }
    return content.hash;
  }

  // What the instruction reads when it starts.
  void Read(int r, int i, std::vector<Hash>& inputs) {
    const Instruction& instruction = ProgramOf(r).instructions[i];
    const Placement& placement = PlacementOf(r);
    const PlacedInstruction& placed = placement.at(i);
    const int num_units = static_cast<int>(outline_.units.size());
    switch (instruction.opcode) {
      case Opcode::kForward:
      case Opcode::kBackward:
      case Opcode::kBackwardInput:
      case Opcode::kBackwardWeight: {
        const Access& access = AccessOf(outline_.nodes[instruction.target], instruction.opcode);
        const size_t first_part = access.reads.size() + access.gradient_reads.size();
        for (size_t k = 0; k < placed.inputs.size(); ++k) {
          if (k < first_part) {
            inputs.push_back(ReadCell(r, i, placed.inputs[k], "a value"));
          } else {
            inputs.push_back(operations::Parameters(ReadCell(r, i, placed.inputs[k], "a parameter slot"),
                                                    access.parameters[k - first_part]));
          }
        }
        break;
      }
      case Opcode::kUnshard:
        inputs.push_back(ReadCell(r, i, placement.Weights(instruction.target), "weights"));
        break;
      case Opcode::kReduceGradients:
        inputs.push_back(ReadContribution(r, i, instruction.target, placed.outputs.front()));
        break;
      case Opcode::kGradientNorm:
        for (UnitId unit = 0; unit < num_units; ++unit) {
          inputs.push_back(ReadCell(r, i, placement.GradientShard(unit), "a gradient shard"));
        }
        break;
      case Opcode::kOptimizerStep:
        inputs = {ReadCell(r, i, placement.Weights(instruction.target), "weights"),
                  ReadCell(r, i, placement.OptimizerState(instruction.target), "an optimizer state"),
                  ReadCell(r, i, placement.GradientShard(instruction.target), "a gradient shard"),
                  ReadCell(r, i, placement.norm(), "the norm")};
        break;
      case Opcode::kReport:
        for (const Cell loss : placed.inputs) {
          inputs.push_back(ReadCell(r, i, loss, "a loss"));
        }
        if (ranks_[r].takes_norm) {
          inputs.push_back(ReadCell(r, i, placement.norm(), "the norm"));
          for (UnitId unit = 0; unit < num_units; ++unit) {
            inputs.push_back(ReadCell(r, i, placement.OptimizerState(unit), "an optimizer state"));
          }
        }
        break;
      case Opcode::kSnapshot:
        for (UnitId unit = 0; unit < num_units; ++unit) {
          inputs.push_back(ReadCell(r, i, placement.Weights(unit), "weights"));
        }
        for (UnitId unit = 0; unit < num_units; ++unit) {
          inputs.push_back(ReadCell(r, i, placement.OptimizerState(unit), "an optimizer state"));
        }
        break;
      case Opcode::kReshard:
      case Opcode::kRelease:
        ReadCell(r, i, placed.outputs.front(), "what it frees, but");
        break;
      case Opcode::kLoadBatch:
        break;
    }
  }

  Hash ReadContribution(int r, int i, UnitId unit, Cell slot) {
    const Content& content = ranks_[r].cells[slot];
    std::vector<Hash> parts(outline_.units[unit].parts.size(), 0);
    for (size_t part = 0; part < parts.size(); ++part) {
      if (!interpreter_.contributed_[unit][part]) {
        continue;
      }
      if (content.state != Content::State::kHeld || content.unit != unit || content.parts[part] == 0) {
        Fault(absl::StrCat(Describe(r, i), " reduces a part that nothing has written"));
      } else {
        parts[part] = content.parts[part];
      }
    }
    return operations::Contribution(unit, parts);
  }

  void Write(int r, Cell cell, Hash hash) {
    RankRun& rank = ranks_[r];
    rank.cells[cell] = Held(hash);
    Overwrite(r, cell);
  }

  // Whatever else lay in its memory is gone.
  void Overwrite(int r, Cell cell) {
    for (const Cell other : PlacementOf(r).overlaps(cell)) {
      if (ranks_[r].cells[other].state == Content::State::kHeld) {
        ranks_[r].cells[other].state = Content::State::kReleased;
      }
    }
  }

  void FinishInstruction(int r, int stream) {
    RankRun& rank = ranks_[r];
    InFlight in_flight = std::exchange(rank.in_flight[stream], {});
    const int i = in_flight.instruction;
    if (in_flight.torn) {
      in_flight.inputs.assign(std::max<size_t>(1, in_flight.inputs.size()), Torn());
    }
    WriteAll(r, i, in_flight);
    rank.done[i] = true;
    ++rank.next[stream];
    bool over = true;
    for (int s = 0; s < kNumStreams; ++s) {
      over = over && rank.next[s] == rank.queues[s].size();
    }
    if (over) {
      NextProgram(r);
    }
  }

  void WriteAll(int r, int i, const InFlight& in_flight) {
    RankRun& rank = ranks_[r];
    const Instruction& instruction = ProgramOf(r).instructions[i];
    const Placement& placement = PlacementOf(r);
    const PlacedInstruction& placed = placement.at(i);
    const std::vector<Hash>& inputs = in_flight.inputs;
    switch (instruction.opcode) {
      case Opcode::kLoadBatch:
        Write(r, placed.outputs.front(),
              in_flight.torn ? inputs.front() : operations::Batch(rank.position, r, instruction.microbatch));
        break;
      case Opcode::kForward:
      case Opcode::kBackward:
      case Opcode::kBackwardInput:
      case Opcode::kBackwardWeight:
        WritePass(r, i, inputs);
        break;
      case Opcode::kUnshard:
        Write(r, placed.outputs.front(), inputs.front());
        break;
      case Opcode::kReshard:
      case Opcode::kRelease:
        rank.cells[placed.outputs.front()] = {.state = Content::State::kReleased};
        break;
      case Opcode::kReduceGradients: {
        const Cell shard = placement.GradientShard(instruction.target);
        Write(r, shard,
              instruction.add_parameter_gradients.front()
                  ? operations::Add(ReadCell(r, i, shard, "a gradient shard"), inputs.front())
                  : inputs.front());
        rank.cells[placed.outputs.front()] = {.state = Content::State::kReleased};
        break;
      }
      case Opcode::kGradientNorm:
        Write(r, placement.norm(), inputs.front());
        break;
      case Opcode::kOptimizerStep:
        Write(r, placement.Weights(instruction.target),
              operations::NextWeights(inputs[0], inputs[1], inputs[2], inputs[3]));
        Write(r, placement.OptimizerState(instruction.target),
              operations::NextOptimizerState(inputs[0], inputs[1], inputs[2], inputs[3]));
        break;
      case Opcode::kReport:
        rank.reports.push_back(operations::Report(inputs));
        break;
      case Opcode::kSnapshot:
        rank.snapshots.push_back(operations::Snapshot(inputs));
        break;
    }
  }

  void WritePass(int r, int i, const std::vector<Hash>& inputs) {
    const Instruction& instruction = ProgramOf(r).instructions[i];
    const PlacedInstruction& placed = PlacementOf(r).at(i);
    const Access& access = AccessOf(outline_.nodes[instruction.target], instruction.opcode);
    const Hash pass = operations::Pass(instruction.target, KindOf(instruction.opcode), inputs);
    size_t output = 0;
    const auto next = [&] { return operations::Output(pass, static_cast<int>(output)); };
    for (size_t k = 0; k < access.writes.size(); ++k, ++output) {
      Write(r, placed.outputs[output], next());
    }
    for (size_t k = 0; k < access.gradient_writes.size(); ++k, ++output) {
      const Cell cell = placed.outputs[output];
      Write(r, cell,
            instruction.add_value_gradients[k]
                ? operations::Add(ReadCell(r, i, cell, "the gradient that it adds to, but"), next())
                : next());
    }
    for (size_t k = 0; k < access.parameter_gradients.size(); ++k, ++output) {
      const UnitPart part = access.parameter_gradients[k];
      Content& slot = ranks_[r].cells[placed.outputs[output]];
      const bool of_unit = slot.state == Content::State::kHeld && slot.unit == part.unit;
      if (instruction.add_parameter_gradients[k]) {
        if (!of_unit || slot.parts[part.part] == 0) {
          Fault(absl::StrCat(Describe(r, i), " adds to a part that nothing has written"));
          return;
        }
        slot.parts[part.part] = operations::Add(slot.parts[part.part], next());
        continue;
      }
      if (!of_unit) {
        slot = Held(0);
        slot.unit = part.unit;
        slot.parts.assign(outline_.units[part.unit].parts.size(), 0);
      }
      slot.parts[part.part] = next();
    }
    if (placed.scratch >= 0) {
      Overwrite(r, placed.scratch);
    }
  }

  void End() {
    std::string still;
    for (int r = 0; r < NumRanks(); ++r) {
      const RankRun& rank = ranks_[r];
      if (rank.position == static_cast<int>(interpreter_.ranks_[r].size())) {
        continue;
      }
      for (int stream = 0; stream < kNumStreams; ++stream) {
        if (rank.next[stream] < rank.queues[stream].size()) {
          absl::StrAppend(&still, still.empty() ? "" : "; ", Describe(r, rank.queues[stream][rank.next[stream]]),
                          rank.in_flight[stream].instruction >= 0 ? " has started" : " is not ready");
        }
      }
    }
    if (!still.empty()) {
      result_ = {RunResult::Kind::kStandsStill, absl::StrCat("nothing is ready: ", still), {}};
      return;
    }
    for (int r = 0; r < NumRanks(); ++r) {
      RankRun& rank = ranks_[r];
      const Placement& placement = *interpreter_.placements_[r].front();
      Ending ending{.reports = std::move(rank.reports), .snapshots = std::move(rank.snapshots)};
      for (UnitId unit = 0; unit < static_cast<int>(outline_.units.size()); ++unit) {
        ending.weights.push_back(rank.cells[placement.Weights(unit)].hash);
        ending.optimizer_states.push_back(rank.cells[placement.OptimizerState(unit)].hash);
        ending.gradient_shards.push_back(rank.cells[placement.GradientShard(unit)].hash);
      }
      result_.endings.push_back(std::move(ending));
    }
  }

  const Interpreter& interpreter_;
  const Outline& outline_;
  std::vector<RankRun> ranks_;
  std::array<std::vector<Meeting>, kNumCommunicators> meetings_;
  uint64_t num_torn_ = 0;
  RunResult result_;
};

Interpreter::Interpreter(const Outline& outline, std::vector<std::vector<const Program*>> ranks)
    : outline_(outline), ranks_(std::move(ranks)), placements_(ranks_.size()), owned_(ranks_.size()) {
  for (size_t r = 0; r < ranks_.size(); ++r) {
    for (const Program* program : ranks_[r]) {
      std::unique_ptr<Placement>& placement = owned_[r][program];
      if (placement == nullptr) {
        placement = std::make_unique<Placement>(outline, ranks_[r], *program);
      }
      placements_[r].push_back(placement.get());
    }
  }
  for (const Unit& unit : outline.units) {
    contributed_.emplace_back(unit.parts.size(), false);
  }
  for (const Node& node : outline.nodes) {
    for (const UnitPart& part : node.backward.parameter_gradients) {
      contributed_[part.unit][part.part] = true;
    }
  }
}

Interpreter::~Interpreter() = default;

RunResult Interpreter::RunInIssueOrder() const {
  Run run(*this);
  return run.Finish([&](const std::vector<Event>& events) {
    int best = 0;
    for (int k = 0; k < static_cast<int>(events.size()); ++k) {
      if (events[k].finish) {
        return k;
      }
      if (run.HeadOf(events[k]) < run.HeadOf(events[best])) {
        best = k;
      }
    }
    return best;
  });
}

RunResult Interpreter::RunAnyOrder(uint64_t seed) const {
  Run run(*this);
  std::mt19937_64 random(seed);
  return run.Finish(
      [&](const std::vector<Event>& events) { return static_cast<int>(random() % events.size()); });
}

std::vector<Interpreter::Pair> Interpreter::UnorderedPairs() const {
  std::vector<Pair> pairs;
  for (int r = 0; r < static_cast<int>(ranks_.size()); ++r) {
    for (int position = 0; position < static_cast<int>(ranks_[r].size()); ++position) {
      const auto begin = ranks_[r].begin();
      if (std::find(begin, begin + position, ranks_[r][position]) == begin + position) {
        for (const UnorderedPair& pair : placements_[r][position]->unordered()) {
          pairs.push_back({r, position, pair});
        }
      }
    }
  }
  return pairs;
}

RunResult Interpreter::RunAtOnce(const Pair& pair, uint64_t seed) const {
  Run run(*this);
  std::mt19937_64 random(seed);
  bool together = false;  // both are let go, and start before anything finishes
  return run.Finish([&](const std::vector<Event>& events) {
    std::vector<int> others;
    std::vector<int> held;
    for (int k = 0; k < static_cast<int>(events.size()); ++k) {
      const Event& event = events[k];
      const bool is_held = event.rank == pair.rank && run.position(event.rank) == pair.position &&
                           !event.finish &&
                           (run.HeadOf(event) == pair.pair.earlier || run.HeadOf(event) == pair.pair.later);
      (is_held ? held : others).push_back(k);
    }
    together |= others.empty();
    const std::vector<int>& from = (together && !held.empty()) ? held : others;
    return from[random() % from.size()];
  });
}

RunResult Interpreter::RunReversed(const Pair& pair, uint64_t seed) const {
  Run run(*this);
  std::mt19937_64 random(seed);
  return run.Finish([&](const std::vector<Event>& events) {
    std::vector<int> others;
    for (int k = 0; k < static_cast<int>(events.size()); ++k) {
      const Event& event = events[k];
      const bool is_held = event.rank == pair.rank && run.position(event.rank) == pair.position &&
                           !event.finish && run.HeadOf(event) == pair.pair.earlier &&
                           !run.IsDone(event.rank, pair.pair.later);
      if (!is_held) {
        others.push_back(k);
      }
    }
    return others.empty() ? static_cast<int>(random() % events.size())
                          : others[random() % others.size()];
  });
}

std::optional<std::string> FindHarm(const Interpreter& interpreter, const std::vector<Ending>& expected,
                                    uint64_t seed, int num_seeds) {
  const auto harm = [&](const RunResult& result, const std::string& order) -> std::optional<std::string> {
    if (result.kind != RunResult::Kind::kEnded) {
      return absl::StrCat(order, ": ", result.what);
    }
    if (result.endings != expected) {
      return absl::StrCat(order, ": ends in other hashes");
    }
    return std::nullopt;
  };
  if (auto found = harm(interpreter.RunInIssueOrder(), "in issue order")) {
    return found;
  }
  for (const Interpreter::Pair& pair : interpreter.UnorderedPairs()) {
    const std::string names = absl::StrCat(pair.pair.later, " and ", pair.pair.earlier);
    if (auto found = harm(interpreter.RunAtOnce(pair, seed), names + " at once")) {
      return found;
    }
    if (auto found = harm(interpreter.RunReversed(pair, seed), names + " reversed")) {
      return found;
    }
  }
  for (int k = 0; k < num_seeds; ++k) {
    if (auto found = harm(interpreter.RunAnyOrder(seed + k), absl::StrCat("seed ", seed + k))) {
      return found;
    }
  }
  return std::nullopt;
}

}  // namespace tandem::schedules
