// SPDX-License-Identifier: Apache-2.0
#include "schedules/check/symbols.h"

#include <algorithm>

namespace tandem::schedules {
namespace {

constexpr uint64_t kMultiplier = 0x9E3779B97F4A7C15;

uint64_t Mix(uint64_t hash, uint64_t value) {
  hash = (hash ^ value) * kMultiplier;
  return hash ^ (hash >> 29);
}

}  // namespace

Symbols::Symbols() : table_(1 << 16, -1) {}

Symbol Symbols::Garbage(int number) {
  nodes_.push_back({.op = SymbolOp::kGarbage, .a = number});
  return static_cast<Symbol>(nodes_.size()) - 1;
}

Symbol Symbols::Of(SymbolOp op, int a, int b, int c, absl::Span<const Symbol> arguments) {
  uint64_t mixed = Mix(Mix(static_cast<uint64_t>(op), static_cast<uint64_t>(a)),
                       static_cast<uint64_t>(b) * 31 + static_cast<uint64_t>(c));
  for (const Symbol argument : arguments) {
    mixed = Mix(mixed, static_cast<uint64_t>(argument));
  }
  const uint32_t hash = static_cast<uint32_t>(mixed >> 32);
  size_t place = hash & (table_.size() - 1);
  while (table_[place] >= 0) {
    const Expression& node = nodes_[table_[place]];
    if (node.hash == hash && node.op == op && node.a == a && node.b == b && node.c == c &&
        std::equal(arguments.begin(), arguments.end(),
                   arguments_.begin() + static_cast<int64_t>(node.first_argument),
                   arguments_.begin() + static_cast<int64_t>(node.first_argument) + node.num_arguments)) {
      return table_[place];
    }
    place = (place + 1) & (table_.size() - 1);
  }
  const Symbol symbol = static_cast<Symbol>(nodes_.size());
  nodes_.push_back({op, a, b, c, hash, static_cast<int>(arguments.size()), arguments_.size()});
  arguments_.insert(arguments_.end(), arguments.begin(), arguments.end());
  table_[place] = symbol;
  if (nodes_.size() * 2 > table_.size()) {
    Grow();
  }
  return symbol;
}

void Symbols::Grow() {
  table_.assign(table_.size() * 4, -1);
  for (Symbol symbol = 0; symbol < static_cast<Symbol>(nodes_.size()); ++symbol) {
    if (nodes_[symbol].op == SymbolOp::kGarbage) {
      continue;
    }
    size_t place = nodes_[symbol].hash & (table_.size() - 1);
    while (table_[place] >= 0) {
      place = (place + 1) & (table_.size() - 1);
    }
    table_[place] = symbol;
  }
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
