// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "device/bf16.h"
#include "ops/attention.h"

struct CUstream_st;

namespace tandem::ops::cuda {

// Causal attention of bfloat16 by cuDNN's fused kernels, which keep no matrix of scores: of shapes that it
// Computes. Matrices are as in attention.h, on the current GPU. The backward repeats its bits where the shape
// says so; what cuDNN needs for that is in its work memory.
//
// Within documents the mask is a part of the graph: the kernels leave out the tiles of the scores above the
// diagonal, and none of those that lie between documents, so that the time is about that of whole sequences.
// cuDNN compiles such a graph for its shape; 9.19 has done so on an H200 for lengths from 2 to 8192, odd ones
// too, and heads of 8 to 128; for some of these lengths with heads of 192 and 256. Of whole sequences it has
// had kernels for all of the twelve heads from 136 to 256 that were tried.
//
// A shape's kernels are chosen once a GPU, by cuDNN's own rules, in Prepare or when the first call is bound.
// Throws std::invalid_argument, with cuDNN's text. Thread-safe.
class FlashAttention {
 public:
  FlashAttention();
  ~FlashAttention();

  // Whether cuDNN has kernels for this shape on the current GPU: it depends on the shape and the GPU's
  // capability alone. It has no backward of heads above 128 dims but on capability 9.x.
  static bool Computes(const AttentionShape& shape);

  // Throws also where the kernels need more than AttentionWorkBytes and AttentionBackwardWorkBytes.
  void Prepare(const AttentionShape& shape);

  // What they return launches the kernels, and lives no longer than this.
  using Bound = std::function<void(CUstream_st* stream)>;
  Bound Bind(const AttentionArgs<device::Bf16>& args);
  Bound Bind(const AttentionBackwardArgs<device::Bf16>& args);

  // The release of cuDNN, whose rules choose the kernels.
  static std::string Version();

 private:
  class Graphs;
  const std::unique_ptr<Graphs> graphs_;
};

}  // namespace tandem::ops::cuda
