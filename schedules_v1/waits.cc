#include "schedules_v1/arena_order.h"
#include "schedules_v1/ordering.h"
#include "schedules_v1/passes.h"

namespace tandem::schedules_v1 {

void InsertWaits(const Outline& outline, Program& program) {
  const EffectTable table(outline, {&program});
  AccessHistory history(table.num_resources());
  ArenaOrder arena(outline, program);
  StreamClocks clocks;
  std::vector<Effect> effects;

  for (int i = 0; i < static_cast<int>(program.instructions.size()); ++i) {
    Instruction& instruction = program.instructions[i];
    Clock start = clocks.now(instruction.stream);
    table.Effects(instruction, program.num_microbatches, effects);

    std::array<Touch, kNumStreams> needed{};  // the latest of each stream; it implies the earlier ones
    const auto need = [&](const Touch& touch) {
      if (touch.place > start[touch.stream] && touch.place > needed[touch.stream].place) {
        needed[touch.stream] = touch;
      }
    };
    for (const Effect& effect : effects) {
      history.ForEachConflict(effect, need);
    }
    for (const int freed : arena.Issue(i)) {
      const int stream = static_cast<int>(program.instructions[freed].stream);
      need({stream, clocks.end(freed)[stream], freed});
    }
    for (const Touch& touch : needed) {
      if (touch.place == 0) {
        continue;
      }
      const bool implied = std::any_of(needed.begin(), needed.end(), [&](const Touch& other) {
        return other.place > 0 && other.stream != touch.stream &&
               clocks.end(other.instruction)[touch.stream] >= touch.place;
      });
      if (!implied) {
        instruction.waits.push_back(touch.instruction);
      }
    }
    std::sort(instruction.waits.begin(), instruction.waits.end());

    for (const int wait : instruction.waits) {
      Join(start, clocks.end(wait));
    }
    const int place = clocks.Issue(instruction.stream, start);
    for (const Effect& effect : effects) {
      history.Record(effect, {static_cast<int>(instruction.stream), place, i});
    }
  }
}

}  // namespace tandem::schedules_v1
