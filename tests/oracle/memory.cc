// SPDX-License-Identifier: Apache-2.0
#include "tests/oracle/memory.h"

#include <algorithm>

namespace tandem::oracle {

Memory::Memory(int64_t size, int rank) : size_(size) {
  segments_.push_back({0, HashOf(Operation::kGarbage, {static_cast<uint64_t>(rank)}), 0, size});
}

size_t Memory::Find(int64_t address) const {
  const auto after = std::upper_bound(segments_.begin(), segments_.end(), address,
                                      [](int64_t a, const Segment& segment) { return a < segment.begin; });
  return static_cast<size_t>(after - segments_.begin()) - 1;
}

size_t Memory::SplitAt(int64_t address) {
  if (address >= size_) {
    return segments_.size();
  }
  const size_t i = Find(address);
  const Segment segment = segments_[i];
  if (segment.begin == address) {
    return i;
  }
  segments_.insert(segments_.begin() + static_cast<int64_t>(i) + 1,
                   {address, segment.hash, segment.offset + address - segment.begin, segment.total});
  return i + 1;
}

void Memory::Write(int64_t begin, int64_t end, Hash hash) {
  if (begin >= end) {
    return;
  }
  size_ = std::max(size_, end);
  const size_t last = SplitAt(end);
  const size_t old_size = segments_.size();
  const size_t first = SplitAt(begin);
  const size_t shifted = last + (segments_.size() - old_size);
  segments_[first] = {begin, hash, 0, end - begin};
  segments_.erase(segments_.begin() + static_cast<int64_t>(first) + 1,
                  segments_.begin() + static_cast<int64_t>(shifted));
}

void Memory::Read(int64_t begin, int64_t end, std::vector<Run>& runs) const {
  for (size_t i = Find(begin); begin < end; ++i) {
    const int64_t segment_end = i + 1 < segments_.size() ? segments_[i + 1].begin : std::max(size_, end);
    const int64_t stop = std::min(end, segment_end);
    const Run run{stop - begin, segments_[i].hash, segments_[i].offset + begin - segments_[i].begin,
                  segments_[i].total};
    if (!runs.empty() && runs.back().hash == run.hash &&
        runs.back().offset + runs.back().length == run.offset) {
      runs.back().length += run.length;
    } else {
      runs.push_back(run);
    }
    begin = stop;
  }
}

}  // namespace tandem::oracle
