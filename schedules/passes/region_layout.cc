#include "schedules/passes/region_layout.h"

#include <functional>
#include <utility>

#include "schedules/passes/frontier.h"
#include "schedules/passes/periodic_layout.h"

namespace tandem::schedules {
namespace {

constexpr size_t kWholeRegion = 3000;  // up to so many buffers are laid out as one window
constexpr size_t kWindow = 256;
constexpr size_t kImproved = 400;  // up to so many buffers, a layout is improved step by step
constexpr int kImprovements = 60;

using Before = std::function<bool(BufferId, BufferId)>;

class Layouter {
 public:
  Layouter(const AccessOrder& order, std::vector<BufferId> buffers, const std::vector<int64_t>& bytes)
      : order_(order), bytes_(bytes), buffers_(std::move(buffers)) {
    std::stable_sort(buffers_.begin(), buffers_.end(), [&](BufferId a, BufferId b) {
      return std::pair(order_.first(a), -bytes_[a]) < std::pair(order_.first(b), -bytes_[b]);
    });
  }

  const std::vector<BufferId>& buffers() const { return buffers_; }  // in order of first touch

  // Lays out windows of so many buffers; within each, in the order of `precedes`.
  RegionLayout ByWindows(size_t window, const Before& precedes) const {
    RegionLayout layout{.begins = std::vector<int64_t>(bytes_.size(), -1)};
    Frontier frontier;
    for (size_t first = 0; first < buffers_.size(); first += window) {
      const auto begin = buffers_.begin() + static_cast<std::ptrdiff_t>(first);
      const auto end =
          buffers_.begin() + static_cast<std::ptrdiff_t>(std::min(first + window, buffers_.size()));
      std::vector<BufferId> placing(begin, end);
      std::stable_sort(placing.begin(), placing.end(), precedes);
      Window(frontier, placing, layout);
      for (auto buffer = begin; buffer != end; ++buffer) {
        const int64_t at = layout.begins[*buffer];
        frontier.Take(*buffer, at, at + bytes_[*buffer]);
      }
    }
    return layout;
  }

  // Places `placing` in its order, each into the lowest gap.
  void Window(const Frontier& frontier, const std::vector<BufferId>& placing, RegionLayout& layout) const {
    const std::vector<Owned> before = Contested(frontier, placing);
    std::vector<Owned> placed;  // ascending begins; they overlap where they share bytes
    placed.reserve(placing.size());
    for (const BufferId buffer : placing) {
      const int64_t bytes = bytes_[buffer];
      int64_t at = 0;
      size_t f = 0;
      size_t p = 0;
      while (f < before.size() || p < placed.size()) {
        const bool take_before =
            p == placed.size() || (f < before.size() && before[f].begin < placed[p].begin);
        const Owned& next = take_before ? before[f++] : placed[p++];
        if (next.begin >= at + bytes) {
          break;
        }
        if (next.end > at && (next.owner < 0 || !order_.MayShare(next.owner, buffer))) {
          at = next.end;
        }
      }
      layout.begins[buffer] = at;
      layout.end = std::max(layout.end, at + bytes);
      placed.insert(std::upper_bound(placed.begin(), placed.end(), at,
                                     [](int64_t begin, const Owned& owned) { return begin < owned.begin; }),
                    {at, at + bytes, buffer});
    }
  }

 private:
  // What of the frontier a window's buffers may not take: owner -1 where none may, so that neighbours are
  // one.
  std::vector<Owned> Contested(const Frontier& frontier, const std::vector<BufferId>& placing) const {
    int latest_first = -1;
    for (const BufferId buffer : placing) {
      latest_first = std::max(latest_first, order_.first(buffer));
    }
    std::vector<Owned> contested;
    for (const Owned& owned : frontier.owned()) {
      if (order_.last(owned.owner) < latest_first) {
        contested.push_back(owned);
      } else if (!contested.empty() && contested.back().owner < 0 && contested.back().end == owned.begin) {
        contested.back().end = owned.end;
      } else {
        contested.push_back({owned.begin, owned.end, -1});
      }
    }
    return contested;
  }

  const AccessOrder& order_;
  const std::vector<int64_t>& bytes_;
  std::vector<BufferId> buffers_;
};

}  // namespace

RegionLayout LayOutRegion(const AccessOrder& order, const std::vector<BufferId>& buffers,
                          const std::vector<int64_t>& bytes, int64_t enough) {
  const Layouter layouter(order, buffers, bytes);
  const auto life = [&](BufferId buffer) {
    return static_cast<double>(order.last(buffer) - order.first(buffer) + 1);
  };
  const Before by_area = [&](BufferId a, BufferId b) {
    return static_cast<double>(bytes[a]) * life(a) > static_cast<double>(bytes[b]) * life(b);
  };
  const Before by_size = [&](BufferId a, BufferId b) { return bytes[a] > bytes[b]; };
  const Before by_life = [&](BufferId a, BufferId b) { return life(a) > life(b); };
  const Before by_first_touch = [&](BufferId a, BufferId b) { return order.first(a) < order.first(b); };

  const bool whole = buffers.size() <= kWholeRegion;
  const size_t window = whole ? std::max<size_t>(1, buffers.size()) : kWindow;
  const std::vector<const Before*> tried = whole ? std::vector{&by_area, &by_size, &by_life, &by_first_touch}
                                                 : std::vector{&by_first_touch, &by_area};
  RegionLayout best;
  best.end = std::numeric_limits<int64_t>::max();
  const Before* best_order = tried.front();
  for (const Before* precedes : tried) {
    RegionLayout layout = layouter.ByWindows(window, *precedes);
    if (layout.end < best.end) {
      best = std::move(layout);
      best_order = precedes;
    }
    if (best.end <= enough) {
      break;
    }
  }
  if (!whole) {
    RegionLayout layout = LayOutPeriodically(order, layouter.buffers(), bytes);
    return layout.end < best.end ? layout : best;
  }
  if (buffers.size() > kImproved) {
    return best;
  }
  // The buffer that ends highest found no lower gap: it is placed earlier.
  std::vector<BufferId> placing = layouter.buffers();
  std::stable_sort(placing.begin(), placing.end(), *best_order);
  RegionLayout last = best;
  for (int step = 0; step < kImprovements && best.end > enough; ++step) {
    const auto highest = std::find_if(placing.begin(), placing.end(), [&](BufferId buffer) {
      return last.begins[buffer] + bytes[buffer] == last.end;
    });
    std::rotate(placing.begin() + (highest - placing.begin()) / 2, highest, highest + 1);
    last = {.begins = std::vector<int64_t>(bytes.size(), -1)};
    layouter.Window(Frontier(), placing, last);
    if (last.end < best.end) {
      best = last;
    }
  }
  return best;
}

bool MayShareAsIn(const AccessOrder& order, const std::vector<BufferId>& buffers,
                  const std::vector<int64_t>& bytes, const RegionLayout& layout) {
  const Layouter layouter(order, buffers, bytes);
  Frontier frontier;
  for (const BufferId buffer : layouter.buffers()) {
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
