// SPDX-License-Identifier: Apache-2.0
#include "model/layer_pattern.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <iostream>
#include <iterator>
#include <map>
#include <random>
#include <set>

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

// A pattern of the grammar. `letters` ends in E and has one kind of attention.
std::string RandomPattern(std::mt19937& random, const std::string& letters) {
  const auto some = [&] { return std::string(1, letters[random() % letters.size()]); };
  std::string text = some();
  for (size_t piece = random() % 8; piece > 0; --piece) {
    std::string group;  // letters once each, of which E is the last
    std::copy_if(letters.begin(), letters.end(), std::back_inserter(group),
                 [&](char) { return random() % 2 == 0; });
    const uint32_t kind = random() % 4;
    text += kind == 0 ? "|" : kind == 1 && !group.empty() ? "[" + group + "]" : some();
  }
  const std::string depth = some() + some();
  for (size_t depths = random() % 3; depths > 0; --depths) {
    text += "/" + depth;
  }
  return text;
}

// What is true of all patterns.
void ExpectPattern(const std::string& text, const LayerPattern& pattern) {
  EXPECT_EQ(LayerPatternText(pattern) + (text.ends_with('/') ? "/" : ""), text);
  EXPECT_EQ(NumUnits(pattern), CountsOf(pattern).logical + pattern.num_depths) << text;
  EXPECT_GT(NumUnits(pattern), 0) << text;
  EXPECT_FALSE(Has(pattern, LayerSymbol::kAttention) && text.find_first_of("+D") != std::string::npos);
  LayerCounts counts;
  for (const PatternSegment& segment : pattern.segments) {
    EXPECT_EQ(segment.before, counts) << text;
    for (const LogicalLayer& layer : segment.layers) {
      EXPECT_EQ(layer.index, counts.logical++) << text;
      EXPECT_EQ(layer.first_number, counts.physical) << text;
      counts.physical += static_cast<int64_t>(layer.symbols.size());
      const std::set<LayerSymbol> once(layer.symbols.begin(), layer.symbols.end());
      EXPECT_EQ(once.size(), layer.symbols.size()) << text;
      EXPECT_TRUE(!once.contains(LayerSymbol::kExperts) || layer.symbols.back() == LayerSymbol::kExperts);
    }
  }
  EXPECT_EQ(CountsOf(pattern), counts) << text;
}

TEST(LayerPatternTest, RandomPatternsAreReadOrRefused) {
  const uint32_t seed = std::random_device()();
  std::cout << "seed " << seed << "\n";
  std::mt19937 random(seed);
  int num_refused = 0;
  for (int i = 0; i < 100'000; ++i) {
    std::string text = RandomPattern(random, i % 2 == 0 ? "MG*-E" : "MG+D-E");
    const absl::StatusOr<LayerPattern> valid = ParseLayerPattern(text);
    ASSERT_TRUE(valid.ok()) << text << ": " << valid.status();
    ExpectPattern(text, *valid);
    for (size_t edits = 1 + random() % 2; edits > 0; --edits) {
      const std::string piece(1, "MG*+D-E[]|/x \xFF"[random() % 14]);
      const size_t at = random() % (text.size() + 1);
      random() % 2 == 0 ? text.insert(at, piece) : text.replace(at, 1, piece);
    }
    const absl::StatusOr<LayerPattern> changed = ParseLayerPattern(text);
    if (changed.ok()) {
      ExpectPattern(text, *changed);
    } else {
      ++num_refused;
      EXPECT_TRUE(std::string(changed.status().message()).starts_with("column ")) << changed.status();
    }
  }
  EXPECT_GT(num_refused, 10'000);
}

}  // namespace
}  // namespace tandem::model
