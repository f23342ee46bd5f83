#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <utility>

namespace tandem::schedules_v1 {

// Where blocks lie in the arena: offsets only, no memory. The plan and the executor run the same sequence
// of calls through it, so the planned peak is the real one, fragmentation included.
//
// Best fit, lowest offset among equals; neighbours that are free merge. Not thread-safe.
class BlockAllocator {
 public:
  static constexpr int64_t kAlignment = 256;

  // Offset of `bytes` bytes, rounded up to kAlignment. Requires bytes >= 0.
  int64_t Allocate(int64_t bytes);

  // Requires an offset that Allocate returned and that is not free.
  void Free(int64_t offset);

  int64_t in_use() const { return in_use_; }  // bytes, rounded sizes
  int64_t peak() const { return end_; }       // highest end of any block so far: what the arena must hold

 private:
  std::map<int64_t, int64_t> used_;                // offset → size
  std::map<int64_t, int64_t> free_;                // offset → size
  std::set<std::pair<int64_t, int64_t>> by_size_;  // (size, offset) of the free ones
  int64_t in_use_ = 0;
  int64_t end_ = 0;
};

}  // namespace tandem::schedules_v1
