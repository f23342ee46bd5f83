#include "schedules_v1/cross_rank.h"

#include <algorithm>
#include <map>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "schedules_v1/operands.h"
#include "schedules_v1/ordering.h"
#include "schedules_v1/text.h"

namespace tandem::schedules_v1 {
namespace {

// An instruction of one of the ranks.
struct Place {
  int rank = -1;
  int instruction = -1;
  bool operator==(const Place&) const = default;
};

bool Fit(const Instruction& a, const Instruction& b) {
  // Gathers of one unit are the same whichever microbatch they are for; contributions are not.
  return a.opcode == b.opcode && a.target == b.target &&
         (a.opcode == Opcode::kUnshard || a.microbatch == b.microbatch);
}

class Joint {
 public:
  explicit Joint(const std::vector<RankProgram>& ranks) : ranks_(ranks), states_(ranks.size()) {
    for (int r = 0; r < NumRanks(); ++r) {
      RankState& state = states_[r];
      const std::vector<Instruction>& instructions = ranks[r].program->instructions;
      state.done.assign(instructions.size(), false);
      state.ordinal.assign(instructions.size(), -1);
      for (int i = 0; i < static_cast<int>(instructions.size()); ++i) {
        state.queues[static_cast<int>(instructions[i].stream)].push_back(i);
        if (const int c = static_cast<int>(instructions[i].communicator); c > 0) {
          state.ordinal[i] = static_cast<int>(state.collectives[c].size());
          state.collectives[c].push_back(i);
        }
      }
    }
  }

  // The same collectives in the same order.
  absl::Status CheckOrder() const {
    for (int c = 1; c < kNumCommunicators; ++c) {
      std::map<int, int> first_of_group;
      for (int r = 0; r < NumRanks(); ++r) {
        const int first = first_of_group.emplace(ranks_[r].groups[c], r).first->second;
        if (absl::Status status = CheckOrder(c, first, r); !status.ok()) {
          return status;
        }
      }
    }
    return absl::OkStatus();
  }

  // Every stream gets to its end. What runs when does not matter: an instruction that can run stays so.
  absl::Status CheckProgress() {
    bool any = true;
    while (any) {
      any = false;
      for (int r = 0; r < NumRanks(); ++r) {
        any |= RunAlone(r);
      }
      for (int c = 1; c < kNumCommunicators; ++c) {
        any |= Meet(c);
      }
    }
    for (int r = 0; r < NumRanks(); ++r) {
      for (int stream = 0; stream < kNumStreams; ++stream) {
        if (const int i = Head(r, stream); i >= 0) {
          return absl::InvalidArgumentError(
              absl::StrCat("the ranks wait for each other for ever: ", Circle({r, i})));
        }
      }
    }
    return absl::OkStatus();
  }

 private:
  struct RankState {
    std::vector<bool> done;
    std::array<std::vector<int>, kNumStreams> queues;
    std::array<size_t, kNumStreams> next{};
    std::array<std::vector<int>, kNumCommunicators> collectives;
    std::vector<int> ordinal;  // of a collective, on its communicator
    std::array<size_t, kNumCommunicators> num_met{};
  };

  int NumRanks() const { return static_cast<int>(ranks_.size()); }
  const Instruction& At(const Place& place) const {
    return ranks_[place.rank].program->instructions[place.instruction];
  }
  std::string Text(const Place& place) const {
    const RankProgram& rank = ranks_[place.rank];
    return absl::StrCat(rank.name, ": ",
                        DescribeInstruction(*rank.outline, *rank.program, place.instruction));
  }

  absl::Status CheckOrder(int c, int a, int b) const {
    const std::vector<int>& of_a = states_[a].collectives[c];
    const std::vector<int>& of_b = states_[b].collectives[c];
    const std::string name = absl::StrCat("communicator ", ToText(static_cast<Communicator>(c)), ": ");
    const size_t both = std::min(of_a.size(), of_b.size());
    for (size_t k = 0; k < both; ++k) {
      const Place in_a{a, of_a[k]};
      const Place in_b{b, of_b[k]};
      if (!Fit(At(in_a), At(in_b))) {
        return absl::InvalidArgumentError(absl::StrCat(name, Text(in_a), " meets ", Text(in_b)));
      }
    }
    if (of_a.size() != of_b.size()) {
      const bool longer_a = of_a.size() > of_b.size();
      return absl::InvalidArgumentError(
          absl::StrCat(name, Text(longer_a ? Place{a, of_a[both]} : Place{b, of_b[both]}), " meets nothing: ",
                       ranks_[longer_a ? b : a].name, " has only ", both, " collectives there, the last ",
                       both == 0 ? "none" : Text(longer_a ? Place{b, of_b.back()} : Place{a, of_a.back()})));
    }
    return absl::OkStatus();
  }

  // The next instruction of a stream, or -1 at its end.
  int Head(int r, int stream) const {
    const RankState& state = states_[r];
    return state.next[stream] < state.queues[stream].size() ? state.queues[stream][state.next[stream]] : -1;
  }

  bool IsReady(const Place& place) const {
    const std::vector<int>& waits = At(place).waits;
    return std::all_of(waits.begin(), waits.end(), [&](int wait) { return states_[place.rank].done[wait]; });
  }

  void Finish(const Place& place) {
    RankState& state = states_[place.rank];
    state.done[place.instruction] = true;
    ++state.next[static_cast<int>(At(place).stream)];
  }

  // Runs what needs no other rank; true if anything ran.
  bool RunAlone(int r) {
    bool any = false;
    for (int stream = 0; stream < kNumStreams; ++stream) {
      for (int i = Head(r, stream);
           i >= 0 && At({r, i}).communicator == Communicator::kNone && IsReady({r, i}); i = Head(r, stream)) {
        Finish({r, i});
        any = true;
      }
    }
    return any;
  }

  // The next collective of the rank on the communicator, if it stands there.
  bool Stands(int r, int c) const {
    const RankState& state = states_[r];
    if (state.num_met[c] == state.collectives[c].size()) {
      return false;
    }
    const int i = state.collectives[c][state.num_met[c]];
    return Head(r, static_cast<int>(At({r, i}).stream)) == i && IsReady({r, i});
  }

  // Lets every group of the communicator meet of which all ranks stand there; true if any did.
  bool Meet(int c) {
    bool any = false;
    std::map<int, bool> all_stand;
    for (int r = 0; r < NumRanks(); ++r) {
      bool& stand = all_stand.emplace(ranks_[r].groups[c], true).first->second;
      stand = stand && Stands(r, c);
    }
    for (int r = 0; r < NumRanks(); ++r) {
      if (all_stand[ranks_[r].groups[c]]) {
        RankState& state = states_[r];
        Finish({r, state.collectives[c][state.num_met[c]++]});
        any = true;
      }
    }
    return any;
  }

  // What an unfinished instruction waits for, and the words for it.
  std::pair<Place, std::string> Blocker(const Place& place) const {
    const RankState& state = states_[place.rank];
    const Instruction& instruction = At(place);
    if (const int head = Head(place.rank, static_cast<int>(instruction.stream)); head != place.instruction) {
      return {{place.rank, head}, " comes on its stream after "};
    }
    for (const int wait : instruction.waits) {
      if (!state.done[wait]) {
        return {{place.rank, wait}, " waits for "};
      }
    }
    const int c = static_cast<int>(instruction.communicator);
    for (int r = 0; r < NumRanks(); ++r) {
      if (ranks_[r].groups[c] == ranks_[place.rank].groups[c] && !Stands(r, c)) {
        return {{r, states_[r].collectives[c][state.ordinal[place.instruction]]}, " waits to meet "};
      }
    }
    return {place, " waits for "};
  }

  std::string Circle(Place place) const {
    std::vector<Place> seen;
    while (std::find(seen.begin(), seen.end(), place) == seen.end()) {
      seen.push_back(place);
      place = Blocker(place).first;
    }
    std::vector<std::string> links;
    for (auto step = std::find(seen.begin(), seen.end(), place); step != seen.end(); ++step) {
      const auto [next, words] = Blocker(*step);
      links.push_back(absl::StrCat(Text(*step), words, Text(next)));
    }
    return absl::StrJoin(links, "; ");
  }

  const std::vector<RankProgram>& ranks_;
  std::vector<RankState> states_;
};

}  // namespace

std::vector<RankProgram> InOneGroup(const Outline& outline, const std::vector<const Program*>& programs) {
  std::vector<RankProgram> ranks;
  for (const Program* program : programs) {
    const std::string letter(1, static_cast<char>('a' + ranks.size() % 26));
    ranks.push_back({.name = "rank " + letter, .outline = &outline, .program = program});
  }
  return ranks;
}

absl::Status CheckRanks(const std::vector<RankProgram>& ranks) {
  Joint joint(ranks);
  if (absl::Status status = joint.CheckOrder(); !status.ok()) {
    return status;
  }
  return joint.CheckProgress();
}

}  // namespace tandem::schedules_v1
