// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace tandem::fsdp {

// Where every parameter of a unit lies in the unit's flat buffer, and which rank owns which part. Pure
// arithmetic. The layout does not depend on the number of ranks; offsets and sizes are in elements.

// Elements [begin, end).
struct Range {
  int64_t begin = 0;
  int64_t end = 0;
  int64_t size() const { return end - begin; }
  bool empty() const { return begin >= end; }
  bool operator==(const Range&) const = default;
};

Range Intersect(Range a, Range b);

// One named tensor, as the model declares it.
struct ParameterSpec {
  std::string name;  // Hugging Face name
  std::vector<int64_t> shape;
  // Parameters that share a non-negative block within a unit are consecutive and lie without gaps, so that
  // one GEMM can use them as one matrix (q, k, v; gate, up).
  int block = -1;
  bool decays = true;  // weight decay acts on it
  // No shard boundary splits a row (all elements with the same first index), because the optimizer or the
  // quantizer works on whole rows. The unit's granule becomes a multiple of the row, which costs padding.
  bool whole_rows = false;
};

struct Parameter {
  std::string name;
  std::vector<int64_t> shape;
  Range range;         // in the unit's flat buffer
  bool decays = true;  // weight decay acts on it
};

struct Layout {
  std::vector<Parameter> parameters;
  int64_t elements = 0;  // total, a multiple of the granule
  int64_t granule = 64;
};

// Lays out the parameters of a unit. Each starts at a multiple of 128 bytes (of `element_bytes`-byte
// elements) and, if its rows must stay whole, of its row; only the first parameter of a block is aligned. The
// layout's granule is the least common multiple of `granule` and of the rows that must stay whole. Throws
// std::invalid_argument for an empty or negative dim, an overflow, a block whose parameters are not
// consecutive or whose whole rows differ in length, and for rows whose common multiple is larger than the
// unit (one rank would own all of it).
Layout MakeLayout(const std::vector<ParameterSpec>& parameters, int element_bytes, int64_t granule = 64);

// Throws std::invalid_argument, naming the parameters, unless they follow each other without overlap inside
// the buffer, each as large as its shape says, and the buffer ends at a multiple of the granule.
void CheckLayout(const Layout& layout);

// Elements of the parameters, without padding.
int64_t ParameterElements(const Layout& layout);

// Elements of one of `num_ranks` equal shards of the padded buffer: a multiple of the granule.
int64_t ShardElements(const Layout& layout, int num_ranks);

// Elements of a gathered buffer: num_ranks * ShardElements, at least layout.elements.
int64_t GatheredElements(const Layout& layout, int num_ranks);

// SHA-256 over names, shapes, offsets: ranks compare it before they start.
std::string LayoutDigest(const std::vector<Layout>& units);

// The part of one parameter that lies in a shard, in flat coordinates.
struct Piece {
  int parameter = 0;  // index in the layout
  Range range;
  bool decays = true;  // weight decay acts on the parameter
  bool operator==(const Piece&) const = default;
};

// The pieces of parameters in `owned`, in the order of the buffer.
std::vector<Piece> PiecesOf(const Layout& layout, Range owned);

// Elements of a range that belong to no parameter.
struct Gap {
  Range range;
  int behind = -1;  // the parameter that precedes the gap in the range; -1: none
  bool operator==(const Gap&) const = default;
};
std::vector<Gap> GapsOf(const Layout& layout, Range range);

// The elements of `pieces` as maximal runs: adjacent pieces without a gap form one run.
std::vector<Range> RunsOf(const std::vector<Piece>& pieces);

}  // namespace tandem::fsdp
