// SPDX-License-Identifier: Apache-2.0
#include "tests/oracle/pipeline.h"

#include <algorithm>
#include <map>
#include <tuple>

#include "schedules/program/text.h"

namespace tandem::oracle {

using schedules::Boundary;
using schedules::BufferKind;
using schedules::Instruction;
using schedules::Opcode;
using schedules::Outline;
using schedules::Program;

namespace {

class Pipeline {
 public:
  Pipeline(const std::vector<Outline>& outlines, const std::vector<const Program*>& programs,
           std::vector<Ended>* order)
      : outlines_(outlines), programs_(programs), order_(order) {
    for (int s = 0; s < static_cast<int>(programs.size()); ++s) {
      std::map<std::tuple<std::string, std::string, bool>, int> counts;
      Stage stage;
      for (const Instruction& in : programs[s]->instructions) {
        stage.state.push_back(State::kNotYet);
        int number = -1;
        if (Meets(in)) {
          const schedules::CommunicatorUse& use = programs[s]->communicators[in.communicator];
          number = counts[{use.group, use.purpose, in.opcode == Opcode::kSend}]++;
        }
        stage.numbers.push_back(number);
      }
      stages_.push_back(stage);
    }
  }

  std::optional<std::string> Run() {
    bool any = true;
    while (any) {
      any = false;
      for (int s = 0; s < NumStages(); ++s) {
        for (; stages_[s].issued < Size(s) && CanIssue(s); ++stages_[s].issued) {
          any = true;
        }
        for (int i = 0; i < stages_[s].issued; ++i) {
          if (stages_[s].state[i] == State::kNotYet && CanStart(s, i)) {
            if (Meets(At(s, i))) {
              stages_[s].state[i] = State::kStarted;
            } else {
              End(s, i);
            }
            any = true;
          }
        }
      }
      for (int s = 0; s < NumStages(); ++s) {
        for (int i = 0; i < Size(s); ++i) {
          if (stages_[s].state[i] == State::kStarted) {
            if (const auto harm = Meet(s, i, any)) {
              return harm;
            }
          }
        }
      }
    }
    for (int s = 0; s < NumStages(); ++s) {
      for (int i = 0; i < Size(s); ++i) {
        if (stages_[s].state[i] != State::kEnded) {
          return "stands still at stage " + std::to_string(s) + ": " + ToText(At(s, i), outlines_[s]);
        }
      }
    }
    return std::nullopt;
  }

 private:
  enum class State : uint8_t { kNotYet, kStarted, kEnded };
  struct Stage {
    std::vector<State> state;  // per instruction
    std::vector<int> numbers;  // of what meets another stage: the how many-th of its kind on its communicator
    int issued = 0;
  };

  static bool Meets(const Instruction& in) {
    return in.opcode == Opcode::kSend || in.opcode == Opcode::kReceive || in.opcode == Opcode::kGradientNorm;
  }
  int NumStages() const { return static_cast<int>(stages_.size()); }
  int Size(int s) const { return static_cast<int>(programs_[s]->instructions.size()); }
  const Instruction& At(int s, int i) const { return programs_[s]->instructions[i]; }
  const schedules::CommunicatorUse& Use(int s, int i) const {
    return programs_[s]->communicators[At(s, i).communicator];
  }

  void End(int s, int i) {
    stages_[s].state[i] = State::kEnded;
    if (order_ != nullptr) {
      order_->emplace_back(s, i);
    }
  }

  // Whether the next instruction's stream has room for it.
  bool CanIssue(int s) const {
    int open = 0;
    for (int k = 0; k < stages_[s].issued; ++k) {
      const bool ended = stages_[s].state[k] == State::kEnded;
      if (!ended && At(s, k).opcode == Opcode::kHostWait) {
        return false;
      }
      open += !ended && At(s, k).stream == At(s, stages_[s].issued).stream ? 1 : 0;
    }
    return open < 8;
  }

  bool CanStart(int s, int i) const {
    const Instruction& in = At(s, i);
    for (int k = 0; k < i; ++k) {
      const bool before = At(s, k).stream == in.stream || At(s, k).opcode == Opcode::kHostWait ||
                          std::any_of(in.waits.begin(), in.waits.end(),
                                      [&](const schedules::Wait& wait) { return wait.instruction == k; });
      if (before && stages_[s].state[k] != State::kEnded) {
        return false;
      }
    }
    return true;
  }

  // The value's place among those that cross between the same two stages; -1: it does not.
  static std::pair<int, int> Crossing(const std::vector<Boundary>& boundaries, int value) {
    std::map<int, int> counts;
    for (const Boundary& boundary : boundaries) {
      const int place = counts[boundary.stage]++;
      if (boundary.value == value) {
        return {boundary.stage, place};
      }
    }
    return {-1, -1};
  }

  // (other stage, place, gradient, microbatch, bytes)
  std::tuple<int, int, bool, int, int64_t> Carries(int s, int i) const {
    const Instruction& in = At(s, i);
    const schedules::Buffer& buffer = programs_[s]->buffers[in.operands[0].buffer];
    const bool gradient = buffer.kind == BufferKind::kActivationGradient;
    const bool outwards = (in.opcode == Opcode::kSend) != gradient;
    const auto [stage, place] = Crossing(outwards ? outlines_[s].sent : outlines_[s].received, in.target);
    return {stage, place, gradient, in.microbatch, buffer.bytes.bound};
  }

  // The started counterpart of a started send or norm ends with it.
  std::optional<std::string> Meet(int s, int i, bool& any) {
    const Instruction& in = At(s, i);
    if (in.opcode == Opcode::kReceive) {
      return std::nullopt;
    }
    std::vector<std::pair<int, int>> met = {{s, i}};
    for (int other = 0; other < NumStages(); ++other) {
      if (other == s ||
          (in.opcode == Opcode::kSend && outlines_[other].stage != std::get<0>(Carries(s, i)))) {
        continue;
      }
      for (int k = 0; k < Size(other); ++k) {
        const Opcode wanted = in.opcode == Opcode::kSend ? Opcode::kReceive : Opcode::kGradientNorm;
        if (At(other, k).opcode == wanted && stages_[other].state[k] == State::kStarted &&
            stages_[other].numbers[k] == stages_[s].numbers[i] && Use(other, k).group == Use(s, i).group &&
            Use(other, k).purpose == Use(s, i).purpose) {
          met.emplace_back(other, k);
        }
      }
    }
    if (in.opcode == Opcode::kSend && met.size() == 2) {
      auto sent = Carries(s, i);
      auto received = Carries(met[1].first, met[1].second);
      std::get<0>(sent) = std::get<0>(received) = 0;
      if (sent != received) {
        return "stage " + std::to_string(s) + " sends " + ToText(in, outlines_[s]) +
               " and another receives " + ToText(At(met[1].first, met[1].second), outlines_[met[1].first]);
      }
    }
    if (met.size() == (in.opcode == Opcode::kSend ? 2 : stages_.size())) {
      for (const auto& [stage, k] : met) {
        End(stage, k);
      }
      any = true;
    }
    return std::nullopt;
  }

  const std::vector<Outline>& outlines_;
  const std::vector<const Program*>& programs_;
  std::vector<Ended>* const order_;
  std::vector<Stage> stages_;
};

}  // namespace

std::optional<std::string> FindHarmTogether(const std::vector<Outline>& outlines,
                                            const std::vector<const Program*>& programs,
                                            std::vector<Ended>* order) {
  return Pipeline(outlines, programs, order).Run();
}

}  // namespace tandem::oracle
