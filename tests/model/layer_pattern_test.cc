// SPDX-License-Identifier: Apache-2.0
#include "model/layer_pattern.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <iostream>
#include <map>
#include <random>
#include <set>

#include "absl/strings/match.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"

namespace tandem::model {
namespace {

std::string ErrorOf(std::string_view text) { return std::string(ParseLayerPattern(text).status().message()); }

struct Counted {
  LayerCounts counts;
  int64_t depths = 0;
  int64_t units = 0;
};

TEST(LayerPatternTest, ExamplesHaveTheirCounts) {
  const std::map<std::string, Counted> examples = {
      {"M*M*", {{4, 4}, 0, 4}},       {"M-M-|M-M*-/MM/MM", {{9, 9}, 2, 11}},
      {"[*E][*E]", {{4, 2}, 0, 2}},   {"M[M*]-", {{4, 3}, 0, 3}},
      {"/MM", {{0, 0}, 1, 1}},        {"[*E][M*-]M/MM", {{6, 3}, 1, 4}},
      {"|M||", {{1, 1}, 0, 1}},       {"M[+E]D-G", {{6, 5}, 0, 5}},
      {"M[*E]/*E/*E", {{3, 2}, 2, 4}}};
  for (const auto& [text, expected] : examples) {
    SCOPED_TRACE(text);
    const absl::StatusOr<LayerPattern> pattern = ParseLayerPattern(text);
    ASSERT_TRUE(pattern.ok()) << pattern.status();
    EXPECT_EQ(CountsOf(*pattern), expected.counts);
    EXPECT_EQ(pattern->num_depths, expected.depths);
    EXPECT_EQ(NumUnits(*pattern), expected.units);
    EXPECT_EQ(LayerPatternText(*pattern), text);
  }
}

TEST(LayerPatternTest, ADepthsLettersAreThePatternsToo) {
  EXPECT_TRUE(Has(*ParseLayerPattern("M/*E"), LayerSymbol::kExperts));
  EXPECT_FALSE(Has(*ParseLayerPattern("M/*E"), LayerSymbol::kMlp));
}

TEST(LayerPatternTest, SlashAtTheEndHasNoDepth) {
  const absl::StatusOr<LayerPattern> pattern = ParseLayerPattern("M*/");
  ASSERT_TRUE(pattern.ok()) << pattern.status();
  EXPECT_EQ(*pattern, *ParseLayerPattern("M*"));
}

TEST(LayerPatternTest, LayersAndSegmentsAreNumberedBothWays) {
  const absl::StatusOr<LayerPattern> pattern = ParseLayerPattern("M[*E]||[M*-]G");
  ASSERT_TRUE(pattern.ok()) << pattern.status();
  using enum LayerSymbol;
  const std::vector<PatternSegment> expected = {
      {{0, 0}, {{{kMamba}, false, 0, 0}, {{kAttention, kExperts}, true, 1, 1}}},
      {{3, 2}, {}},
      {{3, 2}, {{{kMamba, kAttention, kMlp}, true, 2, 3}, {{kGatedDelta}, false, 3, 6}}}};
  EXPECT_EQ(pattern->segments, expected);
}

TEST(LayerPatternTest, ErrorsSayColumnAndRemedy) {
  const std::map<std::string, std::string> errors = {
      {"M*X-", "column 3: X is no layer; allowed here: M, G, *, +, D, -, E and [, ], | and /"},
      {"[*x]", "column 3: x is no layer; allowed here: M, G, *, +, D, -, E and ]"},
      {"M/M M", "column 4: this character is no layer; allowed here: M, G, *, +, D, -, E and /"},
      {"M\xC3\xA9",
       "column 2: this character is no layer; allowed here: M, G, *, +, D, -, E and [, ], | and /"},
      {"M[*E",
       "column 2: [ begins a group that no ] ends; write a ] behind the group's last layer, before any | or "
       "/"},
      {"[*|E]",
       "column 1: [ begins a group that no ] ends; write a ] behind the group's last layer, before any | or "
       "/"},
      {"[*/E",
       "column 1: [ begins a group that no ] ends; write a ] behind the group's last layer, before any | or "
       "/"},
      {"M*]", "column 3: ] ends no group; write a [ before the group's first layer, or omit the ]"},
      {"M[]", "column 2: the group is empty; it needs at least one of M, G, *, +, D, -, E"},
      {"M[*[E]]", "column 4: [ begins a group inside the group of column 2; a group holds layers alone"},
      {"[E*]", "column 2: E is not the last layer of its group; end the group behind it"},
      {"M[EE]", "column 3: E is not the last layer of its group; end the group behind it"},
      {"M[M*M]",
       "column 5: the group of column 2 has a second M, whose parameters would have the names of the first; "
       "end the group before it"},
      {"M/[*E]", "column 3: a layer of multi-token prediction has no groups; write its letters alone"},
      {"M/*]", "column 4: a layer of multi-token prediction has no groups; write its letters alone"},
      {"M/M|M",
       "column 4: multi-token prediction is in the last stage whole; write | before the first / alone"},
      {"M/MM/M*",
       "column 6: this depth of multi-token prediction differs from the first; write the same letters behind "
       "every /"},
      {"M//M", "column 2: no layer is behind this /; write the letters of a depth there, or omit the /"},
      {"M/M/", "column 4: no layer is behind this /; write the letters of a depth there, or omit the /"},
      {"M*D", "column 3: D stands beside a *; a pattern has attention * alone, or + and D"},
      {"+-/*", "column 4: * stands beside a +; a pattern has attention * alone, or + and D"},
      {"", "column 1: the pattern has no layer; layers are letters: M, G, *, +, D, -, E"},
      {"|/", "column 1: the pattern has no layer; layers are letters: M, G, *, +, D, -, E"}};
  for (const auto& [text, error] : errors) {
    EXPECT_EQ(ErrorOf(text), error) << text;
  }
}

TEST(LayerPatternTest, OverlapRefusesMlpInsideGroup) {
  EXPECT_TRUE(CheckOverlaps(*ParseLayerPattern("-M[*-]-[*E]")).ok());
  EXPECT_EQ(
      CheckOverlaps(*ParseLayerPattern("M[-*]")).message(),
      "- is not the last layer of the group [-*], layer 1; with overlapped exchanges it ends its group");
  EXPECT_FALSE(CheckOverlaps(*ParseLayerPattern("[*-E]")).ok());
  EXPECT_TRUE(CheckOverlaps(*ParseLayerPattern("M/M*-")).ok());
  EXPECT_EQ(CheckOverlaps(*ParseLayerPattern("M/-M")).message(),
            "- is not the last layer behind a /; with overlapped exchanges it ends each depth");
}

TEST(LayerPatternTest, SegmentsAreMultipleOfStages) {
  EXPECT_TRUE(CheckSegments(*ParseLayerPattern("MMM"), 2).ok());
  EXPECT_TRUE(CheckSegments(*ParseLayerPattern("M|M||"), 2).ok());
  EXPECT_EQ(CheckSegments(*ParseLayerPattern("M|M|M"), 2).message(),
            "its 3 segments between | are no multiple of 2 pipeline stages; add or omit a |");
}

// What the grammar says, by splitting, without columns: the beginnings of all errors that a pattern has (a
// parser says one of them), and the counts that it has if there is none.
struct Split {
  std::set<std::string> errors;
  LayerCounts counts;
  int64_t depths = 0;
};

bool AreLetters(const std::string& text) { return text.find_first_not_of("MG*+D-E") == std::string::npos; }

void SplitGroup(const std::string& group, Split& split) {
  if (group.empty()) {
    split.errors.insert("the group is empty");
  }
  if (group.find('E') < group.size() - 1) {
    split.errors.insert("E is not the last");
  }
  if (group.find('[') != std::string::npos) {
    split.errors.insert("[ begins a group inside");
  }
  if (group.find('|') != std::string::npos) {
    split.errors.insert("[ begins a group that no");
  }
  if (std::set<char>(group.begin(), group.end()).size() < group.size()) {
    split.errors.insert("the group of column");
  }
  split.counts.logical += 1;
  split.counts.physical += static_cast<int64_t>(group.size());
}

Split SplitPattern(const std::string& text) {
  Split split;
  std::vector<std::string> parts = absl::StrSplit(text, '/');
  std::string main = parts.front();
  parts.erase(parts.begin());
  if (parts == std::vector<std::string>{""}) {
    parts.clear();
  }
  split.depths = static_cast<int64_t>(parts.size());
  for (const std::string& part : parts) {
    const std::map<char, std::string> wrong = {
        {'[', "a layer of multi-token"}, {']', "a layer of multi-token"}, {'|', "multi-token prediction is"}};
    for (const auto& [c, error] : wrong) {
      if (absl::StrContains(part, std::string(1, c))) {
        split.errors.insert(error);
      }
    }
    if (part.empty()) {
      split.errors.insert("no layer is behind");
    }
    if (part != parts.front()) {
      split.errors.insert("this depth of multi-token");
    }
  }
  std::string alone;  // the main part without its groups
  while (!main.empty()) {
    const size_t begin = main.find('[');
    alone += main.substr(0, begin);
    main.erase(0, begin);
    if (main.empty()) {
      break;
    }
    const size_t end = main.find(']');
    if (end == std::string::npos) {
      split.errors.insert("[ begins a group that no");
    }
    SplitGroup(end == std::string::npos ? main.substr(1) : main.substr(1, end - 1), split);
    main.erase(0, end == std::string::npos ? end : end + 1);
  }
  if (absl::StrContains(alone, "]")) {
    split.errors.insert("] ends no group");
  }
  const auto layers = alone.size() - std::count(alone.begin(), alone.end(), '|');
  split.counts.logical += static_cast<int64_t>(layers);
  split.counts.physical += static_cast<int64_t>(layers);
  if (!AreLetters(absl::StrJoin(absl::StrSplit(text, absl::ByAnyChar("/|[]")), ""))) {
    split.errors.insert("is no layer");
  }
  if (absl::StrContains(text, "*") && text.find_first_of("+D") != std::string::npos) {
    split.errors.insert("stands beside a");
  }
  if (split.counts.logical == 0 && split.depths == 0) {
    split.errors.insert("the pattern has no layer");
  }
  return split;
}

std::string RandomLetters(std::mt19937& random, size_t most) {
  std::string letters;
  while (letters.size() < 1 + random() % most) {
    letters += "MMG*--E"[random() % 7];
  }
  return letters;
}

// Of the grammar; then, one time in two, a few characters are changed.
std::string RandomPattern(std::mt19937& random) {
  std::string text;
  for (size_t piece = random() % 8; piece > 0; --piece) {
    const uint32_t kind = random() % 4;
    text += kind == 0 ? "|" : kind == 1 ? "[" + RandomLetters(random, 3) + "]" : RandomLetters(random, 3);
  }
  const std::string depth = RandomLetters(random, 3);
  for (size_t depths = random() % 3; depths > 0; --depths) {
    text += "/" + depth;
  }
  if (random() % 4 == 0) {
    std::replace(text.begin(), text.end(), '*', "+D"[random() % 2]);
  }
  for (size_t edits = random() % 2 * (random() % 3); edits > 0; --edits) {
    const std::string piece(1, "MG*+D-E[]|/x \xFF"[random() % 14]);
    const size_t at = random() % (text.size() + 1);
    random() % 2 == 0 ? text.insert(at, piece) : text.replace(at, 1, piece);
  }
  return text;
}

TEST(LayerPatternTest, RandomPatternsAreAsASecondParserHasThem) {
  const uint32_t seed = std::random_device()();
  std::cout << "seed " << seed << "\n";
  std::mt19937 random(seed);
  int num_valid = 0;
  std::set<std::string> seen;
  for (int i = 0; i < 100'000; ++i) {
    const std::string text = RandomPattern(random);
    const Split split = SplitPattern(text);
    const absl::StatusOr<LayerPattern> pattern = ParseLayerPattern(text);
    ASSERT_EQ(pattern.ok(), split.errors.empty()) << text << ": " << pattern.status();
    if (!pattern.ok()) {
      const auto error = std::find_if(
          split.errors.begin(), split.errors.end(),
          [&](const std::string& error) { return absl::StrContains(pattern.status().message(), error); });
      ASSERT_NE(error, split.errors.end()) << text << ": " << pattern.status();
      seen.insert(*error);
      continue;
    }
    ++num_valid;
    ASSERT_EQ(CountsOf(*pattern), split.counts) << text;
    ASSERT_EQ(pattern->num_depths, split.depths) << text;
    ASSERT_EQ(NumUnits(*pattern), split.counts.logical + split.depths) << text;
    std::string printed = LayerPatternText(*pattern);
    ASSERT_EQ(printed + (text.ends_with('/') ? "/" : ""), text);
    ASSERT_EQ(*ParseLayerPattern(printed), *pattern) << text;
    int64_t logical = 0;
    int64_t physical = 0;
    for (const PatternSegment& segment : pattern->segments) {
      ASSERT_EQ(segment.before, (LayerCounts{physical, logical})) << text;
      for (const LogicalLayer& layer : segment.layers) {
        ASSERT_EQ(layer.index, logical++) << text;
        ASSERT_EQ(layer.first_number, physical) << text;
        physical += static_cast<int64_t>(layer.symbols.size());
      }
    }
  }
  EXPECT_GT(num_valid, 10'000);
  EXPECT_EQ(seen.size(), 13) << absl::StrJoin(seen, "; ");  // every error
}

}  // namespace
}  // namespace tandem::model
