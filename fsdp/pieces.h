// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <vector>

#include "fsdp/layout.h"

namespace tandem::fsdp {

// The part of one parameter that lies in a shard, in flat coordinates.
struct Piece {
  int parameter = 0;  // index in the layout
  Range range;
  bool decays = true;  // weight decay acts on the parameter
  bool operator==(const Piece&) const = default;
};

// The pieces of `owned`, in the order of the buffer; parameters that do not reach into it are left out.
std::vector<Piece> PiecesOf(const Layout& layout, Range owned);

// Elements of a range that belong to no parameter.
struct Gap {
  Range range;
  int behind = -1;  // the parameter before it in the range; -1: none
  bool operator==(const Gap&) const = default;
};
std::vector<Gap> GapsOf(const Layout& layout, Range range);

// The elements of pieces as maximal runs: neighbours without a gap are one. Gaps are in none of them.
std::vector<Range> RunsOf(const std::vector<Piece>& pieces);

}  // namespace tandem::fsdp
