#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "schedules_v1/interpreter.h"
#include "schedules_v1/meaning.h"
#include "schedules_v1/placement.h"
#include "schedules_v1/program.h"

namespace tandem::schedules_v1 {

// One run of what an interpreter was given (interpreter.h says what a run is), step by step: whoever runs it
// chooses what happens next.
class InterpreterRun {
 public:
  // What can happen next: the next instruction of a rank's stream starts, or the one in flight there
  // finishes.
  struct Event {
    int rank = -1;
    int stream = -1;
    bool finish = false;
  };

  // Returns the index of one of the events, of which there is at least one.
  using Choose = std::function<int(const std::vector<Event>&)>;

  // `interpreted` must outlive the run.
  explicit InterpreterRun(const Interpreted& interpreted);

  // Once, to the end.
  RunResult Finish(const Choose& choose);

  // For choosing: the rank's place in its sequence, the instruction of an event, what is done of the program.
  int position(int rank) const { return ranks_[rank].position; }
  int InstructionOf(const Event& event) const;
  bool IsDone(int rank, int i) const { return ranks_[rank].done[i]; }

 private:
  static constexpr int kNumStreams = 5;

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
    std::vector<InFlight*> of_ranks;
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

  static Content Held(Hash hash) { return {.state = Content::State::kHeld, .hash = hash}; }
  int NumRanks() const { return static_cast<int>(ranks_.size()); }
  bool HasEnded(int r) const;
  const Program& ProgramOf(int r) const { return *interpreted_.programs[r][ranks_[r].position]; }
  const Placement& PlacementOf(int r) const { return *interpreted_.placements[r][ranks_[r].position]; }
  const Instruction& At(int r, int i) const { return ProgramOf(r).instructions[i]; }
  std::string Describe(int r, int i) const;
  void Fault(const std::string& what);
  Hash Torn();

  void NextProgram(int r);
  bool IsReady(int r, int i) const;
  bool HasMet(int r, const InFlight& in_flight) const;
  void FindEvents(std::vector<Event>& events) const;
  void Start(int r, int stream);
  void Tear(int r, InFlight& in_flight);
  void Join(int r, InFlight& in_flight);
  void Meet(const Meeting& meeting);
  void FinishInstruction(int r, int stream);
  void End();

  Hash ReadCell(int r, int i, Cell cell, const char* what);
  Hash ReadContribution(int r, int i, UnitId unit, Cell slot);
  void Read(int r, int i, std::vector<Hash>& inputs);
  void Write(int r, Cell cell, Hash hash);
  void Overwrite(int r, Cell cell);
  void WriteAll(int r, int i, const InFlight& in_flight);
  void WritePass(int r, int i, const std::vector<Hash>& inputs);

  const Interpreted& interpreted_;
  const Outline& outline_;
  std::vector<RankRun> ranks_;
  std::array<std::vector<Meeting>, kNumCommunicators> meetings_;  // by communicator and ordinal
  uint64_t num_torn_ = 0;
  RunResult result_;
};

}  // namespace tandem::schedules_v1
