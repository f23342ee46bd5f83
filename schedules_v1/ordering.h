#pragma once

#include <algorithm>
#include <array>
#include <vector>

#include "schedules_v1/effects.h"
#include "schedules_v1/program.h"

namespace tandem::schedules_v1 {

// Who has finished before whom, by vector clocks: what the pass that inserts waits and the checker that
// proves them agree on. Not thread-safe.

inline constexpr int kNumStreams = 5;

// Per stream, how many of its instructions are known to have finished.
using Clock = std::array<int, kNumStreams>;

inline void Join(Clock& clock, const Clock& other) {
  for (int stream = 0; stream < kNumStreams; ++stream) {
    clock[stream] = std::max(clock[stream], other[stream]);
  }
}

// The clocks of streams that run instructions in order, and of each instruction's end.
class StreamClocks {
 public:
  // What an instruction knows that is issued next on `stream`, without its waits.
  const Clock& now(StreamKind stream) const { return now_[static_cast<int>(stream)]; }

  // Of the end of instruction i.
  const Clock& end(int i) const { return ends_[i]; }

  // Issues an instruction on `stream` that knows `start`; returns its place on the stream, from 1.
  int Issue(StreamKind stream, const Clock& start) {
    const int s = static_cast<int>(stream);
    now_[s] = start;
    const int place = ++now_[s][s];
    ends_.push_back(now_[s]);
    return place;
  }

 private:
  std::array<Clock, kNumStreams> now_{};
  std::vector<Clock> ends_;
};

// An access that a later one may conflict with.
struct Touch {
  int stream = -1;
  int place = 0;         // on its stream, from 1; 0: there is none
  int instruction = -1;  // as the caller counts
};

// Per resource: its last write and what each stream has read since.
class AccessHistory {
 public:
  explicit AccessHistory(int num_resources) : resources_(num_resources) {}

  // Calls visit(touch) for every earlier access of the resource that must have finished before `effect`.
  template <typename Visit>
  void ForEachConflict(const Effect& effect, Visit visit) const {
    const Resource& resource = resources_[effect.resource];
    if (resource.write.place > 0) {
      visit(resource.write);
    }
    if (effect.write && resource.any_read) {
      for (int stream = 0; stream < kNumStreams; ++stream) {
        if (resource.reads[stream].place > 0) {
          visit(Touch{stream, resource.reads[stream].place, resource.reads[stream].instruction});
        }
      }
    }
  }

  void Record(const Effect& effect, const Touch& touch) {
    Resource& resource = resources_[effect.resource];
    if (effect.write) {
      resource.write = touch;
      if (resource.any_read) {
        resource.reads.fill({});
        resource.any_read = false;
      }
    } else {
      resource.reads[touch.stream] = {touch.place, touch.instruction};
      resource.any_read = true;
    }
  }

 private:
  struct Read {
    int place = 0;
    int instruction = -1;
  };
  struct Resource {
    Touch write;
    bool any_read = false;
    std::array<Read, kNumStreams> reads;
  };
  std::vector<Resource> resources_;
};

}  // namespace tandem::schedules_v1
