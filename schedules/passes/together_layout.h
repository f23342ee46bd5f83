#pragma once

#include <algorithm>
#include <cstdint>
#include <limits>
#include <numeric>
#include <vector>

namespace tandem::schedules {

// Bytes [begin, end), and what is there.
struct Owned {
  int64_t begin = 0;
  int64_t end = 0;
  int owner = -1;
};

// Of what is placed, with ascending begins, the lowest begin of so many bytes where refuses(owner) is false
// for all.
template <typename Refuses>
int64_t LowestGap(const std::vector<Owned>& placed, int64_t bytes, Refuses refuses) {
  int64_t at = 0;
  for (const Owned& next : placed) {
    if (next.begin >= at + bytes) {
      break;
    }
    if (next.end > at && refuses(next.owner)) {
      at = next.end;
    }
  }
  return at;
}

inline void Insert(const Owned& owned, std::vector<Owned>& placed) {
  placed.insert(std::upper_bound(placed.begin(), placed.end(), owned.begin,
                                 [](int64_t begin, const Owned& other) { return begin < other.begin; }),
                owned);
}

// Things of `bytes` and `lives` (how long each is there, in any unit).
struct Sizes {
  std::vector<int64_t> bytes;
  std::vector<double> lives;
};

struct Begins {
  std::vector<int64_t> begins;
  int64_t end = std::numeric_limits<int64_t>::max();
};

// Lays them out so that i and j share bytes only if not conflict(i, j). Places them by area, size, life and
// number, each into the lowest gap; the one that then ends highest found no lower gap, so it is placed
// earlier, and so on. Keeps the layout that ends lowest, and stops at one that ends within `enough`.
// Quadratic.
template <typename Conflict>
Begins LayOutTogether(const Sizes& sizes, Conflict conflict, int64_t enough) {
  constexpr size_t kImprovementWork = 10'000'000;  // pairs that are compared
  constexpr size_t kMostImprovements = 20;
  const size_t count = sizes.bytes.size();
  const size_t improvements = std::min(kMostImprovements, kImprovementWork / (count * count + 1));
  Begins best;
  Begins layout{.begins = std::vector<int64_t>(count)};
  std::vector<Owned> placed;
  const auto place = [&](const std::vector<int>& order) {
    placed.clear();
    layout.end = 0;
    for (const int i : order) {
      const int64_t at = LowestGap(placed, sizes.bytes[i], [&](int other) { return conflict(other, i); });
      layout.begins[i] = at;
      layout.end = std::max(layout.end, at + sizes.bytes[i]);
      Insert({at, at + sizes.bytes[i], i}, placed);
    }
    if (layout.end < best.end) {
      best = layout;
    }
  };

  const auto by_area = [&](int i, int j) {
    return static_cast<double>(sizes.bytes[i]) * sizes.lives[i] >
           static_cast<double>(sizes.bytes[j]) * sizes.lives[j];
  };
  const auto by_size = [&](int i, int j) { return sizes.bytes[i] > sizes.bytes[j]; };
  const auto by_life = [&](int i, int j) { return sizes.lives[i] > sizes.lives[j]; };
  std::vector<int> numbers(count);
  std::iota(numbers.begin(), numbers.end(), 0);
  std::vector<int> areas = numbers;
  std::stable_sort(areas.begin(), areas.end(), by_area);
  std::vector<int> bytes = numbers;
  std::stable_sort(bytes.begin(), bytes.end(), by_size);
  std::vector<int> bytes_and_areas = areas;
  std::stable_sort(bytes_and_areas.begin(), bytes_and_areas.end(), by_size);
  std::vector<int> lives = numbers;
  std::stable_sort(lives.begin(), lives.end(), by_life);
  for (const size_t steps : {size_t{0}, improvements}) {
    for (std::vector<int>* order : {&bytes, &bytes_and_areas, &areas, &lives, &numbers}) {
      for (size_t step = 0; step <= steps && best.end > enough; ++step) {
        place(*order);
        const auto highest = std::find_if(order->begin(), order->end(), [&](int i) {
          return layout.begins[i] + sizes.bytes[i] == layout.end;
        });
        std::rotate(order->begin() + (highest - order->begin()) / 2, highest, highest + 1);
      }
    }
  }
  return best;
}

}  // namespace tandem::schedules
