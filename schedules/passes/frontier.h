#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "schedules/passes/together_layout.h"
#include "schedules/program/program.h"

namespace tandem::schedules {

// The latest owner of every byte, of buffers that have been laid out in order of first touch. Since two
// owners of a byte are ordered, a buffer that comes after the latest comes after all.
class Frontier {
 public:
  const std::vector<Owned>& owned() const { return owned_; }  // ascending, disjoint

  // The first owner of bytes [begin, end) with refuses(owner), or -1.
  template <typename Refuses>
  BufferId FirstRefused(int64_t begin, int64_t end, Refuses refuses) const {
    for (auto owned = owned_.begin() + FirstFrom(begin); owned != owned_.end() && owned->begin < end;
         ++owned) {
      if (refuses(owned->owner)) {
        return owned->owner;
      }
    }
    return -1;
  }

  // The buffer is the latest owner of bytes [begin, end).
  void Take(BufferId buffer, int64_t begin, int64_t end) {
    const auto first = owned_.begin() + FirstFrom(begin);
    auto last = first;
    Owned pieces[3];
    int count = 0;
    Owned after;
    for (; last != owned_.end() && last->begin < end; ++last) {
      if (last->begin < begin) {
        pieces[count++] = {last->begin, begin, last->owner};
      }
      if (last->end > end) {
        after = {end, last->end, last->owner};
      }
    }
    pieces[count++] = {begin, end, buffer};
    if (after.owner >= 0) {
      pieces[count++] = after;
    }
    const auto kept = std::min<std::ptrdiff_t>(last - first, count);
    const auto rest = std::copy(pieces, pieces + kept, first);
    if (kept == count) {
      owned_.erase(rest, last);
    } else {
      owned_.insert(rest, pieces + kept, pieces + count);
    }
  }

 private:
  std::ptrdiff_t FirstFrom(int64_t begin) const {
    return std::partition_point(owned_.begin(), owned_.end(),
                                [&](const Owned& owned) { return owned.end <= begin; }) -
           owned_.begin();
  }

  std::vector<Owned> owned_;
};

}  // namespace tandem::schedules
