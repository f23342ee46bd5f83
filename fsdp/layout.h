// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "fsdp/slice.h"

namespace tandem::fsdp {

// This file computes the position of every parameter in its unit's flat buffer, and which rank owns which
// part. Pure arithmetic. The layout does not depend on the number of ranks; offsets and sizes are in
// elements.

// One named tensor as the model declares it, and the slice of it that the ranks of the unit's mesh share.
struct ParameterSpec {
  std::string name;  // Hugging Face name
  Shape shape;       // of the whole tensor
  Slice slice;       // of the whole tensor; a slice without elements is not laid out
  // Parameters that share a non-negative block within a unit are consecutive and lie without gaps, so that
  // one GEMM can use them as one matrix (q, k, v; gate, up).
  int block = -1;
  bool decays = true;  // weight decay acts on it
};

struct Parameter {
  std::string name;
  Shape shape;         // of the whole tensor
  Slice slice;         // the part that `range` stores, in the slice's row-major order
  Range range;         // in the unit's flat buffer
  bool decays = true;  // weight decay acts on it
};

// Maps elements `part` of the flat buffer, which belong to `parameter`, to elements of the whole tensor. In
// each CommonRun, `a` is an index in the whole tensor, and `b` counts from the parameter's first element in
// the buffer.
std::vector<CommonRun> WholeRuns(const Parameter& parameter, Range part);

// Shard boundaries lie at multiples of this many elements of a unit's flat buffer.
inline constexpr int kGranule = 64;

struct Layout {
  std::vector<Parameter> parameters;
  int64_t elements = 0;  // with padding, a multiple of kGranule
};

// The layouts of a unit: one for each class of parameters with the same element types (unit_shard.h).
using ClassLayouts = std::vector<Layout>;

// Lays out the parameters of a unit, or of one of its classes. Each starts at a multiple of 128 bytes, except
// that in a block only the first does; an element has `element_bytes` bytes.
//
// Throws std::invalid_argument for an empty or negative dim, a slice that is not within its shape, an
// overflow, and a block whose parameters are not consecutive.
Layout MakeLayout(const std::vector<ParameterSpec>& parameters, int element_bytes);

// Elements of the parameters, without padding.
int64_t ParameterElements(const Layout& layout);

// The part of one parameter that lies in a shard, in flat coordinates.
struct Piece {
  int parameter = 0;  // index in the layout
  Range range;
  bool decays = true;  // weight decay acts on the parameter
  bool operator==(const Piece&) const = default;
};

// The pieces of parameters in `owned`, in the order of the buffer.
std::vector<Piece> PiecesOf(const Layout& layout, Range owned);

// The elements of a range that belong to no parameter.
struct Gap {
  Range range;
  int behind = -1;  // the last parameter before the gap that is in the range; -1: none
  bool operator==(const Gap&) const = default;
};
std::vector<Gap> GapsOf(const Layout& layout, Range range);

// The elements of `pieces` as runs, each as long as possible: adjacent pieces without a gap form one run.
std::vector<Range> RunsOf(const std::vector<Piece>& pieces);

}  // namespace tandem::fsdp
