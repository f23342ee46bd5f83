// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace tandem::model {

// The layers of a decoder as one line of text, a letter a layer: "[M*E]M|[*E]M/MM".
//
//   pattern := main, then "/" and a part for each depth of multi-token prediction; parts are equal
//   main    := segments with "|" between them, which pipeline stages take in turn; a segment may be empty
//   segment := letters, and groups "[...]" of letters
//
// A "/" that ends a pattern without depths changes nothing. A pattern has at least one letter.

// Each value is the letter of the pattern.
enum class LayerSymbol : char {
  kMamba = 'M',
  kGatedDelta = 'G',
  kAttention = '*',
  kLatentAttention = '+',
  kSparseAttention = 'D',
  kMlp = '-',
  kExperts = 'E',
};

// A single letter or a group. It is scheduled, gathered and named as one layer.
struct LogicalLayer {
  std::vector<LayerSymbol> symbols;
  bool grouped = false;
  int64_t index = 0;         // among the logical layers of the main part; names and schedules use it
  int64_t first_number = 0;  // number of its first letter among all letters of the main part, from 0
  bool operator==(const LogicalLayer&) const = default;
};

struct LayerCounts {
  int64_t physical = 0;  // number of letters
  int64_t logical = 0;   // number of layers; a group counts once
  bool operator==(const LayerCounts&) const = default;
};

struct PatternSegment {
  LayerCounts before;  // the layers of all earlier segments
  std::vector<LogicalLayer> layers;
  bool operator==(const PatternSegment&) const = default;
};

struct LayerPattern {
  std::vector<PatternSegment> segments;  // at least one
  std::vector<LayerSymbol> depth;        // the layers of each depth of multi-token prediction
  int64_t num_depths = 0;                // 0 if and only if `depth` is empty
  bool operator==(const LayerPattern&) const = default;
};

// Parses a pattern. An error states the column (from 1) of the wrong character, and what is allowed there. It
// does not contain the pattern.
absl::StatusOr<LayerPattern> ParseLayerPattern(std::string_view text);

// The text that ParseLayerPattern turns into `pattern`.
std::string LayerPatternText(const LayerPattern& pattern);

// The logical layers of the main part, over all segments.
std::vector<LogicalLayer> LayersOf(const LayerPattern& pattern);

// Whether the main part or a depth contains the letter.
bool Has(const LayerPattern& pattern, LayerSymbol symbol);

// Counts the layers of the main part.
LayerCounts CountsOf(const LayerPattern& pattern);

// The number of units that are gathered: one for each logical layer and one for each depth.
int64_t NumUnits(const LayerPattern& pattern);

// Checks that the layers can run with overlapped exchanges of experts' rows. The schedule then has only one
// place for nodes after the exchange of a layer, so a dense MLP must end its group or depth.
absl::Status CheckOverlaps(const LayerPattern& pattern);

// Checks that `stages` pipeline stages can take the segments in turn. A pattern of one segment fits any
// number.
absl::Status CheckSegments(const LayerPattern& pattern, int64_t stages);

}  // namespace tandem::model
