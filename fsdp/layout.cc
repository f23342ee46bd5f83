// SPDX-License-Identifier: Apache-2.0
#include "fsdp/layout.h"

#include <set>
#include <stdexcept>
#include <string_view>

namespace tandem::fsdp {
namespace {

constexpr int64_t kAlignmentBytes = 128;

[[noreturn]] void Refuse(const ParameterSpec& parameter, std::string_view reason) {
  throw std::invalid_argument("layout: parameter '" + parameter.name + "': " + std::string(reason));
}

// Returns the number of elements in its slice.
int64_t ElementsOf(const ParameterSpec& parameter) {
  if (parameter.shape.empty()) {
    Refuse(parameter, "has no dims, at least one is needed");
  }
  int64_t elements = 1;
  for (const int64_t dim : parameter.shape) {
    if (dim <= 0) {
      Refuse(parameter, "has dim " + std::to_string(dim) + ", every dim must be at least 1");
    }
    if (__builtin_mul_overflow(elements, dim, &elements)) {
      Refuse(parameter, "has more than 2^63 elements");
    }
  }
  if (!IsSliceOf(parameter.shape, parameter.slice)) {
    Refuse(parameter, "has a slice that is not within its shape");
  }
  return NumElements(parameter.shape, parameter.slice);
}

int64_t RoundUp(int64_t value, int64_t multiple, const std::string& what) {
  int64_t rounded = 0;
  if (__builtin_add_overflow(value, multiple - 1, &rounded)) {
    throw std::invalid_argument("layout: " + what + " ends beyond 2^63 elements");
  }
  return rounded / multiple * multiple;
}

}  // namespace

std::vector<CommonRun> WholeRuns(const Parameter& parameter, Range part) {
  const int64_t elements = NumElements(parameter.shape, {});
  return CommonRuns(parameter.shape, {}, {.begin = 0, .end = elements}, parameter.slice,
                    {.begin = part.begin - parameter.range.begin, .end = part.end - parameter.range.begin});
}

Layout MakeLayout(const std::vector<ParameterSpec>& parameters, int element_bytes) {
  if (element_bytes <= 0 || kAlignmentBytes % element_bytes != 0) {
    throw std::invalid_argument("layout: elements of " + std::to_string(element_bytes) +
                                " bytes do not divide " + std::to_string(kAlignmentBytes) + " bytes");
  }
  const int64_t alignment = kAlignmentBytes / element_bytes;

  Layout layout;
  std::set<std::string_view> names;
  std::set<int> closed_blocks;  // a block must not continue after it has ended
  int open_block = -1;
  int64_t cursor = 0;
  for (const ParameterSpec& parameter : parameters) {
    if (parameter.name.empty()) {
      Refuse(parameter, "has no name");
    }
    if (!names.insert(parameter.name).second) {
      Refuse(parameter, "appears twice");
    }
    const int64_t elements = ElementsOf(parameter);
    if (elements == 0) {
      continue;
    }
    const bool continues_block = parameter.block >= 0 && parameter.block == open_block;
    if (!continues_block) {
      if (open_block >= 0) {
        closed_blocks.insert(open_block);
      }
      if (closed_blocks.contains(parameter.block)) {
        Refuse(parameter, "continues block " + std::to_string(parameter.block) + " after another parameter");
      }
      open_block = parameter.block;
      cursor = RoundUp(cursor, alignment, "parameter '" + parameter.name + "'");
    }
    int64_t end = 0;
    if (__builtin_add_overflow(cursor, elements, &end)) {
      Refuse(parameter, "ends beyond 2^63 elements");
    }
    layout.parameters.push_back({.name = parameter.name,
                                 .shape = parameter.shape,
                                 .slice = parameter.slice,
                                 .range = {.begin = cursor, .end = end},
                                 .decays = parameter.decays});
    cursor = end;
  }
  layout.elements = RoundUp(cursor, kGranule, "the buffer");
  return layout;
}

int64_t ParameterElements(const Layout& layout) {
  int64_t elements = 0;
  for (const Parameter& parameter : layout.parameters) {
    elements += parameter.range.size();
  }
  return elements;
}

std::vector<Piece> PiecesOf(const Layout& layout, Range owned) {
  std::vector<Piece> pieces;
  for (size_t i = 0; i < layout.parameters.size(); ++i) {
    const Range range = Intersect(layout.parameters[i].range, owned);
    if (range.empty()) {
      continue;
    }
    pieces.push_back(
        {.parameter = static_cast<int>(i), .range = range, .decays = layout.parameters[i].decays});
  }
  return pieces;
}

std::vector<Gap> GapsOf(const Layout& layout, Range range) {
  std::vector<Gap> gaps;
  int64_t cursor = range.begin;
  int behind = -1;
  const auto add = [&](int64_t end) {
    if (end > cursor) {
      gaps.push_back({.range = {.begin = cursor, .end = end}, .behind = behind});
    }
  };
  for (const Piece& piece : PiecesOf(layout, range)) {
    add(piece.range.begin);
    cursor = piece.range.end;
    behind = piece.parameter;
  }
  add(range.end);
  return gaps;
}

std::vector<Range> RunsOf(const std::vector<Piece>& pieces) {
  std::vector<Range> runs;
  for (const Piece& piece : pieces) {
    if (!runs.empty() && runs.back().end == piece.range.begin) {
      runs.back().end = piece.range.end;
    } else {
      runs.push_back(piece.range);
    }
  }
  return runs;
}

}  // namespace tandem::fsdp
