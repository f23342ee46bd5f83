// SPDX-License-Identifier: Apache-2.0
#include "schedules/check/symbols.h"

namespace tandem::schedules {

Symbol Symbols::Garbage(int number) {
  nodes_.push_back({.op = SymbolOp::kGarbage, .a = number});
  return static_cast<Symbol>(nodes_.size()) - 1;
}

Symbol Symbols::Of(SymbolOp op, int a, int b, int c, absl::Span<const Symbol> arguments) {
  const auto symbol = static_cast<Symbol>(nodes_.size());
  const size_t first_argument = arguments_.size();
  nodes_.push_back({op, a, b, c, first_argument, arguments.size()});
  arguments_.insert(arguments_.end(), arguments.begin(), arguments.end());
  const auto [found, is_new] = known_.insert(symbol);
  if (!is_new) {
    nodes_.pop_back();
    arguments_.resize(first_argument);
  }
  return *found;
}

Symbol Symbols::Concat(absl::Span<const Symbol> parts) {
  const auto is_part_of = [&](int i, Symbol whole) {
    return op(parts[i]) == SymbolOp::kPart && a(parts[i]) == i && arguments(parts[i])[0] == whole;
  };
  if (op(parts[0]) == SymbolOp::kPart) {
    const Symbol whole = arguments(parts[0])[0];
    int i = 0;
    while (i < static_cast<int>(parts.size()) && is_part_of(i, whole)) {
      ++i;
    }
    if (i == static_cast<int>(parts.size())) {
      return whole;
    }
  }
  return parts.size() == 1 ? parts[0] : Of(SymbolOp::kConcat, 0, 0, 0, parts);
}

Symbol Symbols::Part(int part, Symbol whole) {
  if (op(whole) == SymbolOp::kConcat && part < static_cast<int>(arguments(whole).size())) {
    return arguments(whole)[part];
  }
  return Of(SymbolOp::kPart, part, 0, 0, {whole});
}

}  // namespace tandem::schedules
