// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <utility>

#include "platform/check.h"
#include "schedules/passes/passes.h"
#include "schedules/program/signature.h"

namespace tandem::schedules {
namespace {

// A gather, and what reads what it gathers. Positions are those of instructions that do not move.
struct Gather {
  Instruction instruction;
  BufferId buffer = -1;
  bool once = false;  // a run: nothing but its source holds it back
  int group = -1;     // gathers of one layer that count as one span
  int first_use = -1;
  int last_use = -1;
  std::vector<int> last_readers;  // one a stream at most
  int position = -1;              // before this instruction it is issued
};

class Orderer {
 public:
  Orderer(const Outline& outline, int prefetch, Program& program)
      : outline_(outline), prefetch_(prefetch), program_(program) {}

  void Run() {
    Split();
    FindReaders();
    GroupByLayer();
    Place();
    Merge();
  }

 private:
  void Split() {
    for (Instruction& instruction : program_.instructions) {
      const int position = static_cast<int>(fixed_.size());
      if (instruction.opcode == Opcode::kUnshard) {
        const BufferId buffer = Find(instruction, Role::kGathered)->buffer;
        const bool once = instruction.microbatch < 0;
        gathers_.push_back({.instruction = std::move(instruction), .buffer = buffer, .once = once});
      } else if (instruction.opcode == Opcode::kLoadBatch) {
        load_positions_.push_back(position);
        loads_.push_back(std::move(instruction));
      } else {
        if (start_ < 0 && (IsNodePass(instruction.opcode) || instruction.opcode == Opcode::kReceive ||
                           instruction.opcode == Opcode::kHostWait)) {
          start_ = position;
        }
        fixed_.push_back(std::move(instruction));
      }
    }
    start_ = std::max(start_, 0);
  }

  void FindReaders() {
    std::vector<int> gather_of(program_.buffers.size(), -1);
    for (size_t i = 0; i < gathers_.size(); ++i) {
      gather_of[gathers_[i].buffer] = static_cast<int>(i);
    }
    for (int position = 0; position < static_cast<int>(fixed_.size()); ++position) {
      for (const Operand& operand : fixed_[position].operands) {
        const int index = gather_of[operand.buffer];
        if (index < 0) {
          continue;
        }
        Gather& gather = gathers_[index];
        gather.first_use = gather.first_use < 0 ? position : gather.first_use;
        gather.last_use = position;
        const auto same_stream =
            std::find_if(gather.last_readers.begin(), gather.last_readers.end(),
                         [&](int reader) { return fixed_[reader].stream == fixed_[position].stream; });
        if (same_stream == gather.last_readers.end()) {
          gather.last_readers.push_back(position);
        } else {
          *same_stream = position;
        }
      }
    }
    std::stable_sort(gathers_.begin(), gathers_.end(),
                     [](const Gather& a, const Gather& b) { return a.first_use < b.first_use; });
  }

  // A layer's dense and its expert unit are one span, as long as neither is gathered again.
  void GroupByLayer() {
    struct Newest {
      int layer = -1;
      int group = -1;
      std::vector<UnitId> units;
    };
    std::vector<Newest> layers;
    for (size_t i = 0; i < gathers_.size(); ++i) {
      Gather& gather = gathers_[i];
      if (gather.once) {
        continue;
      }
      const UnitId unit = gather.instruction.target;
      const int layer = outline_.units[unit].layer;
      auto newest =
          std::find_if(layers.begin(), layers.end(), [&](const Newest& l) { return l.layer == layer; });
      if (newest == layers.end()) {
        newest = layers.insert(newest, {.layer = layer});
      }
      if (newest->group < 0 ||
          std::find(newest->units.begin(), newest->units.end(), unit) != newest->units.end()) {
        newest->group = static_cast<int>(groups_.size());
        newest->units.clear();
        groups_.emplace_back();
      }
      newest->units.push_back(unit);
      gather.group = newest->group;
      groups_[gather.group].push_back(static_cast<int>(i));
    }
  }

  void Place() {
    std::vector<int> free_from(outline_.units.size(), 0);  // where the unit's former span has ended
    for (Gather& gather : gathers_) {
      const int ahead = gather.group - prefetch_;
      int position = start_;
      if (!gather.once && ahead >= 0) {
        position = gathers_[groups_[ahead].front()].first_use;
      }
      int& free = free_from[gather.instruction.target];
      gather.position = std::min(gather.first_use, std::max({position, free, start_}));
      free = gather.last_use + 1;
    }
    order_.resize(gathers_.size());
    for (size_t i = 0; i < order_.size(); ++i) {
      order_[i] = static_cast<int>(i);
    }
    std::stable_sort(order_.begin(), order_.end(), [&](int a, int b) {
      return std::pair(gathers_[a].position, !gathers_[a].once) <
             std::pair(gathers_[b].position, !gathers_[b].once);
    });
  }

  void Merge() {
    std::vector<Instruction>& result = program_.instructions;
    result.clear();
    result.reserve(fixed_.size() + gathers_.size() + loads_.size());
    std::vector<int> moved_to(fixed_.size(), -1);
    size_t next_gather = 0;
    size_t next_load = 0;
    for (int position = 0; position <= static_cast<int>(fixed_.size()); ++position) {
      // A microbatch's tokens are loaded where those of the one before were used first; the first at the
      // start.
      while (next_load < loads_.size() &&
             (next_load == 0 ? std::min(1, start_) : load_positions_[next_load - 1]) == position) {
        result.push_back(std::move(loads_[next_load++]));
      }
      for (; next_gather < order_.size() && gathers_[order_[next_gather]].position == position;
           ++next_gather) {
        Gather& gather = gathers_[order_[next_gather]];
        const int behind = gather.group - prefetch_ - 1;
        if (!gather.once && behind >= 0) {
          for (const int other : groups_[behind]) {
            for (const int reader : gathers_[other].last_readers) {
              if (reader < position) {
                gather.instruction.waits.push_back({moved_to[reader]});
              }
            }
          }
        }
        result.push_back(std::move(gather.instruction));
      }
      if (position < static_cast<int>(fixed_.size())) {
        moved_to[position] = static_cast<int>(result.size());
        result.push_back(std::move(fixed_[position]));
      }
    }
    TANDEM_CHECK(next_gather == order_.size() && next_load == loads_.size(), "what moves finds its place");
  }

  const Outline& outline_;
  const int prefetch_;
  Program& program_;
  std::vector<Instruction> fixed_;
  std::vector<Gather> gathers_;  // in order of first use
  std::vector<Instruction> loads_;
  std::vector<int> load_positions_;       // where they were
  std::vector<std::vector<int>> groups_;  // gathers, in order of first use
  std::vector<int> order_;                // gathers in issue order
  int start_ = -1;                        // the first pass
};

}  // namespace

void OrderInstructions(const Outline& outline, int prefetch, Program& program) {
  TANDEM_CHECK(prefetch >= 0, "the prefetch distance is not negative");
  Orderer(outline, prefetch, program).Run();
}

}  // namespace tandem::schedules
