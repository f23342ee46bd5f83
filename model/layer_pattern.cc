// SPDX-License-Identifier: Apache-2.0
#include "model/layer_pattern.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "platform/status_macros.h"

namespace tandem::model {
namespace {

constexpr std::string_view kLetters = "MG*+D-E";
constexpr char kLetterList[] = "M, G, *, +, D, -, E";

bool IsLetter(char c) { return kLetters.find(c) != std::string_view::npos; }

absl::Status ErrorAt(size_t at, const std::string& what) {
  return absl::InvalidArgumentError(absl::StrCat("column ", at + 1, ": ", what));
}

// Plain attention has a row of keys for each head, narrow attention one row for all heads. A pattern has only
// one of the two, because a checkpoint's names, and what is kept for a token, depend on it.
bool IsPlainAttention(char c) { return c == '*'; }
bool IsNarrowAttention(char c) { return c == '+' || c == 'D'; }

class Parser {
 public:
  explicit Parser(std::string_view text) : text_(text) {}

  absl::StatusOr<LayerPattern> Parse() {
    TANDEM_RETURN_IF_ERROR(ParseMain());
    while (at_ < text_.size()) {  // at a "/"
      TANDEM_RETURN_IF_ERROR(ParseDepth());
    }
    if (CountsOf(pattern_).logical == 0 && pattern_.num_depths == 0) {
      return ErrorAt(0, absl::StrCat("the pattern has no layer; layers are letters: ", kLetterList));
    }
    return std::move(pattern_);
  }

 private:
  // Parses up to the first "/" or the end.
  absl::Status ParseMain() {
    pattern_.segments.emplace_back();
    LayerCounts counts;
    for (; at_ < text_.size() && text_[at_] != '/'; ++at_) {
      const char c = text_[at_];
      if (c == '|') {
        pattern_.segments.push_back({.before = counts});
        continue;
      }
      LogicalLayer layer{.grouped = c == '[', .index = counts.logical, .first_number = counts.physical};
      if (c == ']') {
        return ErrorAt(at_, "] ends no group; write a [ before the group's first layer, or omit the ]");
      }
      if (layer.grouped) {
        TANDEM_RETURN_IF_ERROR(ParseGroup(layer));
      } else {
        TANDEM_RETURN_IF_ERROR(TakeLetter("[, ], | and /", layer.symbols));
      }
      counts.physical += static_cast<int64_t>(layer.symbols.size());
      counts.logical += 1;
      pattern_.segments.back().layers.push_back(std::move(layer));
    }
    return absl::OkStatus();
  }

  // Parses from "[" to its "]".
  absl::Status ParseGroup(LogicalLayer& layer) {
    const size_t begin = at_;
    for (++at_;; ++at_) {
      if (at_ == text_.size() || text_[at_] == '|' || text_[at_] == '/') {
        return ErrorAt(begin,
                       "[ begins a group that no ] ends; write a ] behind the group's last layer, "
                       "before any | or /");
      }
      if (text_[at_] == ']') {
        break;
      }
      if (text_[at_] == '[') {
        return ErrorAt(at_, absl::StrCat("[ begins a group inside the group of column ", begin + 1,
                                         "; a group holds layers alone"));
      }
      if (!layer.symbols.empty() && layer.symbols.back() == LayerSymbol::kExperts) {
        return ErrorAt(at_ - 1, "E is not the last layer of its group; end the group behind it");
      }
      TANDEM_RETURN_IF_ERROR(TakeLetter("]", layer.symbols));
      const LayerSymbol taken = layer.symbols.back();
      if (std::count(layer.symbols.begin(), layer.symbols.end(), taken) > 1) {
        return ErrorAt(
            at_, absl::StrCat("the group of column ", begin + 1, " has a second ", std::string(1, text_[at_]),
                              ", whose parameters would have the names of the first; end the "
                              "group before it"));
      }
    }
    return layer.symbols.empty()
               ? ErrorAt(begin, absl::StrCat("the group is empty; it needs at least one of ", kLetterList))
               : absl::OkStatus();
  }

  // Parses from "/" to the next one or the end.
  absl::Status ParseDepth() {
    const size_t slash = at_;
    std::vector<LayerSymbol> symbols;
    for (++at_; at_ < text_.size() && text_[at_] != '/'; ++at_) {
      const char c = text_[at_];
      if (c == '[' || c == ']') {
        return ErrorAt(at_, "a layer of multi-token prediction has no groups; write its letters alone");
      }
      if (c == '|') {
        return ErrorAt(at_,
                       "multi-token prediction is in the last stage whole; write | before the first / "
                       "alone");
      }
      TANDEM_RETURN_IF_ERROR(TakeLetter("/", symbols));
    }
    if (symbols.empty()) {
      const bool ends_pattern = at_ == text_.size() && pattern_.num_depths == 0;
      return ends_pattern ? absl::OkStatus()
                          : ErrorAt(slash,
                                    "no layer is behind this /; write the letters of a depth there, "
                                    "or omit the /");
    }
    if (pattern_.num_depths > 0 && symbols != pattern_.depth) {
      return ErrorAt(slash + 1,
                     "this depth of multi-token prediction differs from the first; write the same "
                     "letters behind every /");
    }
    pattern_.depth = std::move(symbols);
    pattern_.num_depths += 1;
    return absl::OkStatus();
  }

  absl::Status TakeLetter(const char* others, std::vector<LayerSymbol>& symbols) {
    const char c = text_[at_];
    if (!IsLetter(c)) {
      const bool shown = c > ' ' && c < 0x7f;
      return ErrorAt(at_, absl::StrCat(shown ? std::string(1, c) : "this character",
                                       " is no layer; allowed here: ", kLetterList, " and ", others));
    }
    if (IsPlainAttention(c) || IsNarrowAttention(c)) {
      if (attention_ != 0 && IsPlainAttention(attention_) != IsPlainAttention(c)) {
        return ErrorAt(at_, absl::StrCat(std::string(1, c), " stands beside a ", std::string(1, attention_),
                                         "; a pattern has attention * alone, or + and D"));
      }
      attention_ = c;
    }
    symbols.push_back(static_cast<LayerSymbol>(c));
    return absl::OkStatus();
  }

  const std::string_view text_;
  size_t at_ = 0;
  char attention_ = 0;  // the last letter of attention so far; 0: none
  LayerPattern pattern_;
};

std::string Letters(const std::vector<LayerSymbol>& symbols) {
  std::string letters;
  for (const LayerSymbol symbol : symbols) {
    letters += static_cast<char>(symbol);
  }
  return letters;
}

}  // namespace

absl::StatusOr<LayerPattern> ParseLayerPattern(std::string_view text) { return Parser(text).Parse(); }

std::string LayerPatternText(const LayerPattern& pattern) {
  std::string text;
  for (const PatternSegment& segment : pattern.segments) {
    text += &segment == &pattern.segments.front() ? "" : "|";
    for (const LogicalLayer& layer : segment.layers) {
      text += layer.grouped ? absl::StrCat("[", Letters(layer.symbols), "]") : Letters(layer.symbols);
    }
  }
  for (int64_t depth = 0; depth < pattern.num_depths; ++depth) {
    text += "/" + Letters(pattern.depth);
  }
  return text;
}

std::vector<LogicalLayer> LayersOf(const LayerPattern& pattern) {
  std::vector<LogicalLayer> layers;
  for (const PatternSegment& segment : pattern.segments) {
    layers.insert(layers.end(), segment.layers.begin(), segment.layers.end());
  }
  return layers;
}

bool Has(const LayerPattern& pattern, LayerSymbol symbol) {
  if (std::find(pattern.depth.begin(), pattern.depth.end(), symbol) != pattern.depth.end()) {
    return true;
  }
  const std::vector<LogicalLayer> layers = LayersOf(pattern);
  return std::any_of(layers.begin(), layers.end(), [&](const LogicalLayer& layer) {
    return std::find(layer.symbols.begin(), layer.symbols.end(), symbol) != layer.symbols.end();
  });
}

LayerCounts CountsOf(const LayerPattern& pattern) {
  LayerCounts counts = pattern.segments.back().before;
  for (const LogicalLayer& layer : pattern.segments.back().layers) {
    counts.physical += static_cast<int64_t>(layer.symbols.size());
    counts.logical += 1;
  }
  return counts;
}

int64_t NumUnits(const LayerPattern& pattern) { return CountsOf(pattern).logical + pattern.num_depths; }

absl::Status CheckOverlaps(const LayerPattern& pattern) {
  const auto of_depth = std::find(pattern.depth.begin(), pattern.depth.end(), LayerSymbol::kMlp);
  if (of_depth != pattern.depth.end() && of_depth + 1 != pattern.depth.end()) {
    return absl::InvalidArgumentError(
        "- is not the last layer behind a /; with overlapped exchanges it ends each depth");
  }
  for (const PatternSegment& segment : pattern.segments) {
    for (const LogicalLayer& layer : segment.layers) {
      const auto mlp = std::find(layer.symbols.begin(), layer.symbols.end(), LayerSymbol::kMlp);
      if (mlp != layer.symbols.end() && mlp + 1 != layer.symbols.end()) {
        return absl::InvalidArgumentError(absl::StrCat("- is not the last layer of the group [",
                                                       Letters(layer.symbols), "], layer ", layer.index,
                                                       "; with overlapped exchanges it ends its group"));
      }
    }
  }
  return absl::OkStatus();
}

absl::Status CheckSegments(const LayerPattern& pattern, int64_t stages) {
  const auto segments = static_cast<int64_t>(pattern.segments.size());
  if (segments == 1 || segments % stages == 0) {
    return absl::OkStatus();
  }
  return absl::InvalidArgumentError(absl::StrCat("its ", segments, " segments between | are no multiple of ",
                                                 stages, " pipeline stages; add or omit a |"));
}

}  // namespace tandem::model
