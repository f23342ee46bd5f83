// SPDX-License-Identifier: Apache-2.0
#include "schedules/passes/region_layout.h"

#include <algorithm>
#include <functional>
#include <limits>
#include <numeric>
#include <utility>

namespace tandem::schedules {
namespace {

// The buffers of a region in order of first touch, by number, and which of them may not share bytes.
class Region {
 public:
  Region(const LiveRanges& lives, const std::vector<BufferId>& buffers, const std::vector<int64_t>& bytes,
         const std::vector<BufferId>& before)
      : lives_(lives), buffers_(buffers) {
    std::stable_sort(buffers_.begin(), buffers_.end(), [&](BufferId a, BufferId b) {
      return std::pair(lives.first(a), -bytes[a]) < std::pair(lives.first(b), -bytes[b]);
    });
    for (const BufferId buffer : buffers_) {
      bytes_.push_back(bytes[buffer]);
    }
    FindConflictEnds();
    FindTogether(before);
  }

  int size() const { return static_cast<int>(buffers_.size()); }
  BufferId buffer(int i) const { return buffers_[i]; }
  int64_t bytes(int i) const { return bytes_[i]; }
  // Of all that i is placed together with.
  double life(int i) const {
    double life = 0;
    for (const int j : together_[i]) {
      life += lives_.Life(buffers_[j]);
    }
    return life;
  }
  // What gets one address with i, ascending; empty: i is placed with an earlier one.
  const std::vector<int>& together(int i) const { return together_[i]; }
  // From this number on, all know that i is not accessed any more.
  int conflict_end(int i) const { return conflict_ends_[i]; }

  bool Conflict(int i, int j) const {
    return !lives_.Before(buffers_[std::min(i, j)], buffers_[std::max(i, j)]);
  }

 private:
  void FindConflictEnds() {
    const size_t streams = lives_.num_streams();
    // What all from a number on know.
    std::vector<int> known(streams * (size() + 1), std::numeric_limits<int>::max());
    for (int i = size() - 1; i >= 0; --i) {
      for (size_t s = 0; s < streams; ++s) {
        known[i * streams + s] = std::min(known[(i + 1) * streams + s], lives_.Known(buffers_[i])[s]);
      }
    }
    std::vector<int> numbers(size() + 1);
    std::iota(numbers.begin(), numbers.end(), 0);
    for (int i = 0; i < size(); ++i) {
      const absl::Span<const int> last = lives_.Last(buffers_[i]);
      conflict_ends_.push_back(
          *std::partition_point(numbers.begin() + i + 1, numbers.end() - 1, [&](int number) {
            return !std::equal(last.begin(), last.end(), known.begin() + number * streams,
                               std::less_equal<>());
          }));
    }
  }

  // Buffers are in the order of first touch, so the one before another has the lower number.
  void FindTogether(const std::vector<BufferId>& before) {
    std::vector<int> first_of(before.size());  // by buffer: the number of the first of those with its address
    for (int i = 0; i < size(); ++i) {
      const BufferId other = before.empty() ? -1 : before[buffers_[i]];
      const int first = other < 0 ? i : first_of[other];
      together_.emplace_back();
      together_[first].push_back(i);
      if (!before.empty()) {
        first_of[buffers_[i]] = first;
      }
    }
  }

  const LiveRanges& lives_;
  std::vector<BufferId> buffers_;
  std::vector<int64_t> bytes_;
  std::vector<int> conflict_ends_;
  std::vector<std::vector<int>> together_;
};

// What has been placed, found by when it is in use. Numbers are in blocks. What comes into use in a block is
// listed there; what is still in use in later ones is listed in a tree over the blocks, once a subtree.
class Placed {
 public:
  explicit Placed(const Region& region)
      : region_(region),
        num_blocks_(region.size() / kBlock + 1),
        begun_(num_blocks_),
        lasting_(2 * num_blocks_) {}

  void Clear() {
    for (std::vector<std::vector<Bytes>>* lists : {&begun_, &lasting_}) {
      for (std::vector<Bytes>& list : *lists) {
        list.clear();
      }
    }
  }

  void Insert(int i, int64_t begin) {
    const Bytes bytes{begin, begin + region_.bytes(i), i};
    Insert(bytes, begun_[FirstBlock(i)]);
    // The subtrees that together are the blocks from the next one to the last.
    int first = FirstBlock(i) + 1 + num_blocks_;
    int end = LastBlock(i) + 1 + num_blocks_;
    for (; first < end; first /= 2, end /= 2) {
      if (first % 2 == 1) {
        Insert(bytes, lasting_[first++]);
      }
      if (end % 2 == 1) {
        Insert(bytes, lasting_[--end]);
      }
    }
  }

  // The same for all that is placed together with i.
  int64_t FirstFitOfAll(int i, int64_t at) {
    const std::vector<int>& together = region_.together(i);
    int64_t before = -1;
    while (at != before) {
      before = at;
      for (const int j : together) {
        at = FirstFit(j, at);
      }
      if (together.size() == 1) {
        break;
      }
    }
    return at;
  }

  // The lowest address from `at` on where buffer i conflicts with nothing.
  int64_t FirstFit(int i, int64_t at) {
    ListInUse(i);
    const int count = static_cast<int>(in_use_.size());
    // What lies before `next` in a list is below `at`, or does not conflict.
    for (int settled = 0, k = 0; settled < count; k = (k + 1) % count) {
      const std::vector<Bytes>& placed = *in_use_[k].placed;
      const int64_t before = at;
      size_t& next = in_use_[k].next;
      for (; next < placed.size() && placed[next].begin < at + region_.bytes(i); ++next) {
        if (placed[next].end > at && region_.Conflict(placed[next].number, i)) {
          at = placed[next].end;
        }
      }
      work_ += static_cast<int64_t>(placed.size());
      settled = at == before ? settled + 1 : 1;
    }
    return at;
  }

  int64_t work() const { return work_; }  // entries that were looked at, at most

 private:
  static constexpr int kBlock = 256;

  struct Bytes {
    int64_t begin = 0;
    int64_t end = 0;
    int number = -1;
  };

  struct List {
    const std::vector<Bytes>* placed = nullptr;
    size_t next = 0;
  };

  static int FirstBlock(int i) { return i / kBlock; }
  int LastBlock(int i) const { return (region_.conflict_end(i) - 1) / kBlock; }

  static void Insert(const Bytes& bytes, std::vector<Bytes>& list) {
    list.insert(std::upper_bound(list.begin(), list.end(), bytes.begin,
                                 [](int64_t begin, const Bytes& other) { return begin < other.begin; }),
                bytes);
  }

  // What may be in use together with buffer i, each in one list.
  void ListInUse(int i) {
    in_use_.clear();
    const auto add = [&](const std::vector<Bytes>& list) {
      if (!list.empty()) {
        in_use_.push_back({&list});
      }
    };
    for (int node = FirstBlock(i) + num_blocks_; node > 0; node /= 2) {
      add(lasting_[node]);
    }
    for (int block = FirstBlock(i); block <= LastBlock(i); ++block) {
      add(begun_[block]);
    }
  }

  const Region& region_;
  const int num_blocks_;
  // Each list by begin.
  std::vector<std::vector<Bytes>> begun_;    // by block
  std::vector<std::vector<Bytes>> lasting_;  // by subtree: leaves behind num_blocks_, n's parent is n / 2
  std::vector<List> in_use_;
  int64_t work_ = 0;
};

// Places buffers one after the other, each into the lowest gap, and keeps the layout that ends lowest.
class GreedyLayout {
 public:
  GreedyLayout(const Region& region, int64_t enough) : region_(region), enough_(enough), placed_(region) {}

  std::vector<int64_t> Run() {
    std::vector<std::vector<int>> orders = Orders();
    for (int improvements = 0; improvements <= kMostImprovements; ++improvements) {
      for (std::vector<int>& order : orders) {
        if ((!best_.empty() && best_end_ <= enough_) || (improvements > 0 && placed_.work() > kWork)) {
          return best_;
        }
        Place(order);
        // What ends highest found no lower gap, so it is placed earlier the next time.
        const auto highest = std::find_if(order.begin(), order.end(),
                                          [&](int i) { return begins_[i] + region_.bytes(i) == end_; });
        std::rotate(order.begin() + (highest - order.begin()) / 2, highest, highest + 1);
      }
    }
    return best_;
  }

 private:
  static constexpr int kMostImprovements = 20;
  static constexpr int64_t kWork = 10'000'000;

  // By size, by size and then area (size x life), by area, by life, by number.
  std::vector<std::vector<int>> Orders() const {
    const auto by_area = [&](int i, int j) {
      return static_cast<double>(region_.bytes(i)) * region_.life(i) >
             static_cast<double>(region_.bytes(j)) * region_.life(j);
    };
    const auto by_size = [&](int i, int j) { return region_.bytes(i) > region_.bytes(j); };
    const auto by_life = [&](int i, int j) { return region_.life(i) > region_.life(j); };
    std::vector<int> numbers;
    for (int i = 0; i < region_.size(); ++i) {
      if (!region_.together(i).empty()) {
        numbers.push_back(i);
      }
    }
    std::vector<std::vector<int>> orders(5, numbers);
    std::stable_sort(orders[0].begin(), orders[0].end(), by_size);
    std::stable_sort(orders[2].begin(), orders[2].end(), by_area);
    orders[1] = orders[2];
    std::stable_sort(orders[1].begin(), orders[1].end(), by_size);
    std::stable_sort(orders[3].begin(), orders[3].end(), by_life);
    return orders;
  }

  void Place(const std::vector<int>& order) {
    placed_.Clear();
    begins_.assign(region_.size(), 0);
    end_ = 0;
    for (const int i : order) {
      const int64_t begin = placed_.FirstFitOfAll(i, 0);
      for (const int j : region_.together(i)) {
        begins_[j] = begin;
        placed_.Insert(j, begin);
      }
      end_ = std::max(end_, begins_[i] + region_.bytes(i));
      if (end_ >= best_end_) {
        return;  // with the others still at 0: no better whatever they do
      }
    }
    best_end_ = end_;
    best_ = begins_;
  }

  const Region& region_;
  const int64_t enough_;
  Placed placed_;
  std::vector<int64_t> begins_;  // by number
  int64_t end_ = 0;
  std::vector<int64_t> best_;
  int64_t best_end_ = std::numeric_limits<int64_t>::max();
};

}  // namespace

RegionLayout LayOutRegion(const LiveRanges& lives, const std::vector<BufferId>& buffers,
                          const std::vector<int64_t>& bytes, const std::vector<BufferId>& before,
                          int64_t enough) {
  const Region region(lives, buffers, bytes, before);
  const std::vector<int64_t> begins = GreedyLayout(region, enough).Run();
  RegionLayout layout{.begins = std::vector<int64_t>(bytes.size(), -1)};
  for (int i = 0; i < region.size(); ++i) {
    layout.begins[region.buffer(i)] = begins[i];
    layout.end = std::max(layout.end, begins[i] + region.bytes(i));
  }
  return layout;
}

bool MayShareAsIn(const LiveRanges& lives, const std::vector<BufferId>& buffers,
                  const std::vector<int64_t>& bytes, const RegionLayout& layout) {
  const Region region(lives, buffers, bytes, {});
  Placed placed(region);
  for (int i = 0; i < region.size(); ++i) {
    const int64_t begin = layout.begins[region.buffer(i)];
    if (placed.FirstFit(i, begin) != begin) {
      return false;
    }
    placed.Insert(i, begin);
  }
  return true;
}

}  // namespace tandem::schedules
