// SPDX-License-Identifier: Apache-2.0
#include "tests/parity/pairs.h"

#include <set>
#include <tuple>
#include <utility>

#include "tests/platform/seeded_random.h"

namespace tandem::parity {
namespace {

using Pair = std::tuple<size_t, int, size_t, int>;  // dimension and value, of a lower and of a higher one

std::vector<Pair> PairsOf(const Choice& choice) {
  std::vector<Pair> pairs;
  for (size_t a = 0; a < choice.size(); ++a) {
    for (size_t b = a + 1; b < choice.size(); ++b) {
      pairs.emplace_back(a, choice[a], b, choice[b]);
    }
  }
  return pairs;
}

}  // namespace

std::vector<Choice> AllChoices(const std::vector<int>& sizes) {
  std::vector<Choice> choices = {{}};
  for (const int size : sizes) {
    std::vector<Choice> longer;
    for (const Choice& choice : choices) {
      for (int value = 0; value < size; ++value) {
        longer.push_back(choice);
        longer.back().push_back(value);
      }
    }
    choices = std::move(longer);
  }
  return choices;
}

// Greedy: each choice is the one with the most new pairs, of those that follow a random one.
std::vector<Choice> ChoicesThatCoverAllPairs(const std::vector<int>& sizes, uint64_t seed) {
  platform::SeededRandom random(seed);
  const std::vector<Choice> all = AllChoices(sizes);
  std::set<Pair> missing;
  for (const Choice& choice : all) {
    for (const Pair& pair : PairsOf(choice)) {
      missing.insert(pair);
    }
  }
  std::vector<Choice> chosen;
  while (!missing.empty()) {
    const size_t first = random.Next64() % all.size();
    size_t best = first;
    int most = -1;
    for (size_t i = 0; i < all.size(); ++i) {
      const size_t at = (first + i) % all.size();
      int fresh = 0;
      for (const Pair& pair : PairsOf(all[at])) {
        fresh += missing.contains(pair) ? 1 : 0;
      }
      if (fresh > most) {
        most = fresh;
        best = at;
      }
    }
    chosen.push_back(all[best]);
    for (const Pair& pair : PairsOf(all[best])) {
      missing.erase(pair);
    }
  }
  return chosen;
}

}  // namespace tandem::parity
