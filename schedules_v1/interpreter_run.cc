#include "schedules_v1/interpreter_run.h"

#include <algorithm>
#include <utility>

#include "absl/hash/hash.h"
#include "absl/strings/str_cat.h"
#include "schedules_v1/access.h"
#include "schedules_v1/text.h"

namespace tandem::schedules_v1 {
namespace {

bool Communicates(Opcode opcode) {
  return opcode == Opcode::kUnshard || opcode == Opcode::kReduceGradients || opcode == Opcode::kGradientNorm;
}

}  // namespace

InterpreterRun::InterpreterRun(const Interpreted& interpreted)
    : interpreted_(interpreted), outline_(interpreted.outline), ranks_(interpreted.programs.size()) {
  for (int r = 0; r < NumRanks(); ++r) {
    RankRun& rank = ranks_[r];
    int num_cells = 0;
    for (const Placement* placement : interpreted.placements[r]) {
      num_cells = std::max(num_cells, placement->num_cells());
      if (!placement->fault().empty()) {
        Fault(absl::StrCat("rank ", r, " cannot issue ", placement->fault()));
      }
    }
    rank.cells.resize(num_cells);
    const Placement& first = *interpreted.placements[r].front();
    for (UnitId unit = 0; unit < static_cast<int>(outline_.units.size()); ++unit) {
      rank.cells[first.Weights(unit)] = Held(operations::InitialWeights(r, unit));
      rank.cells[first.OptimizerState(unit)] = Held(operations::InitialOptimizerState(r, unit));
    }
    NextProgram(r);
  }
}

RunResult InterpreterRun::Finish(const Choose& choose) {
  std::vector<Event> events;
  while (result_.kind == RunResult::Kind::kEnded) {
    FindEvents(events);
    if (events.empty()) {
      End();
      break;
    }
    const Event event = events[choose(events)];
    if (event.finish) {
      FinishInstruction(event.rank, event.stream);
    } else {
      Start(event.rank, event.stream);
    }
  }
  return std::move(result_);
}

int InterpreterRun::InstructionOf(const Event& event) const {
  const RankRun& rank = ranks_[event.rank];
  return rank.queues[event.stream][rank.next[event.stream]];
}

bool InterpreterRun::HasEnded(int r) const {
  return ranks_[r].position == static_cast<int>(interpreted_.programs[r].size());
}

std::string InterpreterRun::Describe(int r, int i) const {
  return absl::StrCat("rank ", r, ": ", ProgramOf(r).name, " ", i, " (", ToText(At(r, i), outline_), ")");
}

void InterpreterRun::Fault(const std::string& what) {
  if (result_.kind == RunResult::Kind::kEnded) {
    result_ = {RunResult::Kind::kFault, what, {}};
  }
}

// What was never seen before.
Hash InterpreterRun::Torn() { return absl::HashOf(uint64_t{0x746f726e}, ++num_torn_); }

void InterpreterRun::NextProgram(int r) {
  RankRun& rank = ranks_[r];
  do {
    ++rank.position;
  } while (!HasEnded(r) && ProgramOf(r).instructions.empty());
  if (HasEnded(r)) {
    return;
  }
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
  std::fill(rank.cells.begin() + PlacementOf(r).num_lasting_cells(), rank.cells.end(), Content{});
}

bool InterpreterRun::IsReady(int r, int i) const {
  const std::vector<int>& waits = At(r, i).waits;
  return std::all_of(waits.begin(), waits.end(), [&](int wait) { return ranks_[r].done[wait]; });
}

bool InterpreterRun::HasMet(int r, const InFlight& in_flight) const {
  const int communicator = static_cast<int>(At(r, in_flight.instruction).communicator);
  return in_flight.meeting < 0 || meetings_[communicator][in_flight.meeting].num_started == NumRanks();
}

void InterpreterRun::FindEvents(std::vector<Event>& events) const {
  events.clear();
  for (int r = 0; r < NumRanks(); ++r) {
    const RankRun& rank = ranks_[r];
    for (int stream = 0; !HasEnded(r) && stream < kNumStreams; ++stream) {
      const InFlight& in_flight = rank.in_flight[stream];
      if (in_flight.instruction >= 0) {
        if (HasMet(r, in_flight)) {
          events.push_back({r, stream, true});
        }
      } else if (rank.next[stream] < rank.queues[stream].size() &&
                 IsReady(r, rank.queues[stream][rank.next[stream]])) {
        events.push_back({r, stream, false});
      }
    }
  }
}

void InterpreterRun::Start(int r, int stream) {
  RankRun& rank = ranks_[r];
  InFlight& in_flight = rank.in_flight[stream];
  in_flight = {.instruction = rank.queues[stream][rank.next[stream]]};
  Tear(r, in_flight);
  Read(r, in_flight.instruction, in_flight.inputs);
  if (Communicates(At(r, in_flight.instruction).opcode)) {
    Join(r, in_flight);
  }
}

// What is in flight beside it, and in conflict with it.
void InterpreterRun::Tear(int r, InFlight& in_flight) {
  const int i = in_flight.instruction;
  for (const UnorderedPair& pair : PlacementOf(r).unordered()) {
    if (pair.earlier != i && pair.later != i) {
      continue;
    }
    const bool is_earlier = pair.earlier == i;
    for (InFlight& other : ranks_[r].in_flight) {
      if (other.instruction == (is_earlier ? pair.later : pair.earlier)) {
        in_flight.torn |= is_earlier ? pair.earlier_torn : pair.later_torn;
        other.torn |= is_earlier ? pair.later_torn : pair.earlier_torn;
      }
    }
  }
}

// Ranks meet in the order in which they start collectives on a communicator.
void InterpreterRun::Join(int r, InFlight& in_flight) {
  const int communicator = static_cast<int>(At(r, in_flight.instruction).communicator);
  in_flight.meeting = ranks_[r].num_meetings[communicator]++;
  std::vector<Meeting>& meetings = meetings_[communicator];
  if (in_flight.meeting == static_cast<int>(meetings.size())) {
    meetings.push_back({.of_ranks = std::vector<InFlight*>(ranks_.size(), nullptr)});
  }
  Meeting& meeting = meetings[in_flight.meeting];
  meeting.of_ranks[r] = &in_flight;
  if (++meeting.num_started == NumRanks()) {
    Meet(meeting);
  }
}

// All ranks have started it: they must mean the same, and each gets what all brought.
void InterpreterRun::Meet(const Meeting& meeting) {
  const Instruction& first = At(0, meeting.of_ranks[0]->instruction);
  std::vector<Hash> all;
  for (int r = 0; r < NumRanks(); ++r) {
    InFlight& brought = *meeting.of_ranks[r];
    const Instruction& other = At(r, brought.instruction);
    if (first.opcode != other.opcode || first.target != other.target) {
      Fault(absl::StrCat(Describe(0, meeting.of_ranks[0]->instruction), " meets ",
                         Describe(r, brought.instruction)));
      return;
    }
    if (brought.torn) {
      brought.inputs.assign(brought.inputs.size(), Torn());
    }
    all.insert(all.end(), brought.inputs.begin(), brought.inputs.end());
  }
  const Hash result = first.opcode == Opcode::kUnshard           ? operations::Gather(first.target, all)
                      : first.opcode == Opcode::kReduceGradients ? operations::Reduction(all)
                                                                 : operations::Norm(all);
  for (InFlight* of_rank : meeting.of_ranks) {
    of_rank->inputs = {result};
  }
}

void InterpreterRun::FinishInstruction(int r, int stream) {
  RankRun& rank = ranks_[r];
  InFlight in_flight = std::exchange(rank.in_flight[stream], {});
  if (in_flight.torn) {
    in_flight.inputs.assign(std::max<size_t>(1, in_flight.inputs.size()), Torn());
  }
  WriteAll(r, in_flight.instruction, in_flight);
  rank.done[in_flight.instruction] = true;
  ++rank.next[stream];
  bool over = true;
  for (int s = 0; s < kNumStreams; ++s) {
    over = over && rank.next[s] == rank.queues[s].size();
  }
  if (over) {
    NextProgram(r);
  }
}

void InterpreterRun::End() {
  std::string still;
  for (int r = 0; r < NumRanks(); ++r) {
    const RankRun& rank = ranks_[r];
    for (int stream = 0; !HasEnded(r) && stream < kNumStreams; ++stream) {
      if (rank.next[stream] < rank.queues[stream].size()) {
        absl::StrAppend(&still, still.empty() ? "" : "; ",
                        Describe(r, rank.queues[stream][rank.next[stream]]),
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
    const Placement& placement = *interpreted_.placements[r].front();
    Ending ending{.reports = std::move(rank.reports), .snapshots = std::move(rank.snapshots)};
    for (UnitId unit = 0; unit < static_cast<int>(outline_.units.size()); ++unit) {
      ending.weights.push_back(rank.cells[placement.Weights(unit)].hash);
      ending.optimizer_states.push_back(rank.cells[placement.OptimizerState(unit)].hash);
      ending.gradient_shards.push_back(rank.cells[placement.GradientShard(unit)].hash);
    }
    result_.endings.push_back(std::move(ending));
  }
}

}  // namespace tandem::schedules_v1
