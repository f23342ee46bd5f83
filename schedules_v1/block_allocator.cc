#include "schedules_v1/block_allocator.h"

#include <algorithm>

#include "platform/check.h"

namespace tandem::schedules_v1 {
namespace {

// Nothing is smaller than one unit of alignment, so that every live block has an offset of its own.
int64_t Rounded(int64_t bytes) {
  constexpr int64_t kUnit = BlockAllocator::kAlignment;
  return std::max<int64_t>(1, (bytes + kUnit - 1) / kUnit) * kUnit;
}

}  // namespace

int64_t BlockAllocator::Allocate(int64_t bytes) {
  TANDEM_CHECK(bytes >= 0, "a block has no negative size");
  const int64_t size = Rounded(bytes);
  in_use_ += size;
  const auto fit = by_size_.lower_bound({size, 0});
  if (fit == by_size_.end()) {
    // Nothing fits. A free block at the very end grows instead of being left behind.
    int64_t begin = end_;
    if (!free_.empty()) {
      const auto last = std::prev(free_.end());
      if (last->first + last->second == end_) {
        begin = last->first;
        by_size_.erase({last->second, last->first});
        free_.erase(last);
      }
    }
    end_ = begin + size;
    used_.emplace(begin, size);
    return begin;
  }
  const auto [free_size, offset] = *fit;
  by_size_.erase(fit);
  free_.erase(offset);
  if (free_size > size) {
    free_.emplace(offset + size, free_size - size);
    by_size_.emplace(free_size - size, offset + size);
  }
  used_.emplace(offset, size);
  return offset;
}

void BlockAllocator::Free(int64_t offset) {
  const auto block = used_.find(offset);
  TANDEM_CHECK(block != used_.end(), "only a block that is in use can be freed");
  int64_t begin = offset;
  int64_t size = block->second;
  in_use_ -= size;
  used_.erase(block);

  auto next = free_.lower_bound(begin);
  if (next != free_.end() && next->first == begin + size) {
    size += next->second;
    by_size_.erase({next->second, next->first});
    next = free_.erase(next);
  }
  if (next != free_.begin()) {
    const auto previous = std::prev(next);
    if (previous->first + previous->second == begin) {
      begin = previous->first;
      size += previous->second;
      by_size_.erase({previous->second, previous->first});
      free_.erase(previous);
    }
  }
  free_.emplace(begin, size);
  by_size_.emplace(size, begin);
}

}  // namespace tandem::schedules_v1
