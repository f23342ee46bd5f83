#include "schedules/passes/region_layout.h"

#include <algorithm>
#include <utility>

#include "schedules/passes/frontier.h"
#include "schedules/passes/periodic_layout.h"
#include "schedules/passes/together_layout.h"

namespace tandem::schedules {
namespace {

constexpr size_t kMostTogether = 3000;  // buffers

void SortByFirstTouch(const AccessOrder& order, const std::vector<int64_t>& bytes,
                      std::vector<BufferId>& buffers) {
  std::stable_sort(buffers.begin(), buffers.end(), [&](BufferId a, BufferId b) {
    return std::pair(order.first(a), -bytes[a]) < std::pair(order.first(b), -bytes[b]);
  });
}

RegionLayout Together(const AccessOrder& order, const std::vector<BufferId>& buffers,
                      const std::vector<int64_t>& bytes, int64_t enough) {
  Sizes sizes;
  for (const BufferId buffer : buffers) {
    sizes.bytes.push_back(bytes[buffer]);
    sizes.lives.push_back(order.Life(buffer));
  }
  const Begins placed = LayOutTogether(
      sizes, [&](int i, int j) { return !order.MayShare(buffers[i], buffers[j]); }, enough);
  RegionLayout layout{.begins = std::vector<int64_t>(bytes.size(), -1), .end = placed.end};
  for (size_t i = 0; i < buffers.size(); ++i) {
    layout.begins[buffers[i]] = placed.begins[i];
  }
  return layout;
}

// Each into the lowest gap, in order of first touch.
RegionLayout InIssueOrder(const AccessOrder& order, const std::vector<BufferId>& buffers,
                          const std::vector<int64_t>& bytes) {
  RegionLayout layout{.begins = std::vector<int64_t>(bytes.size(), -1)};
  Frontier frontier;
  for (const BufferId buffer : buffers) {
    const int64_t at = LowestGap(frontier.owned(), bytes[buffer],
                                 [&](BufferId owner) { return !order.Before(owner, buffer); });
    frontier.Take(buffer, at, at + bytes[buffer]);
    layout.begins[buffer] = at;
    layout.end = std::max(layout.end, at + bytes[buffer]);
  }
  return layout;
}

}  // namespace

RegionLayout LayOutRegion(const AccessOrder& order, std::vector<BufferId> buffers,
                          const std::vector<int64_t>& bytes, int64_t enough) {
  SortByFirstTouch(order, bytes, buffers);
  if (buffers.empty()) {
    return {.begins = std::vector<int64_t>(bytes.size(), -1)};
  }
  RegionLayout layout = buffers.size() <= kMostTogether ? Together(order, buffers, bytes, enough)
                                                        : InIssueOrder(order, buffers, bytes);
  if (layout.end > enough) {
    RegionLayout periodic = LayOutPeriodically(order, buffers, bytes);
    if (periodic.end < layout.end) {
      return periodic;
    }
  }
  return layout;
}

bool MayShareAsIn(const AccessOrder& order, std::vector<BufferId> buffers, const std::vector<int64_t>& bytes,
                  const RegionLayout& layout) {
  SortByFirstTouch(order, bytes, buffers);
  Frontier frontier;
  for (const BufferId buffer : buffers) {
    const int64_t begin = layout.begins[buffer];
    const int64_t end = begin + bytes[buffer];
    if (frontier.FirstRefused(begin, end, [&](BufferId owner) { return !order.Before(owner, buffer); }) >=
        0) {
      return false;
    }
    frontier.Take(buffer, begin, end);
  }
  return true;
}

}  // namespace tandem::schedules
