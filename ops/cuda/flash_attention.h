// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "device/bf16.h"
#include "ops/attention.h"
#include "ops/cuda/kernels.h"

struct CUstream_st;

namespace tandem::ops::cuda {

// Causal attention of bfloat16 by cuDNN's fused kernels, which store no matrix of scores, for shapes that it
// Computes. Matrices are as in attention.h, on the current GPU. The backward gives the same bits each time if
// the shape requires it; cuDNN's memory for that is part of the work memory.
//
// For documents, the mask is part of cuDNN's graph. The kernels skip tiles of scores above the diagonal, but
// not those between documents, so the time is about that of whole sequences. cuDNN compiles such a graph for
// its shape. On an H200, release 9.19 did so for all tried lengths from 2 to 8192, odd ones included, with
// heads of 8 to 128, and for some of these lengths with heads of 192 and 256. For whole sequences it had
// kernels for all twelve tried heads from 136 to 256.
//
// A shape's kernels are chosen once for each GPU, by cuDNN's own rules, in Prepare or when the first call is
// bound. Throws std::invalid_argument with cuDNN's message. Thread-safe.
class FlashAttention {
 public:
  FlashAttention();
  ~FlashAttention();

  // Whether cuDNN has kernels for this shape on the current GPU. The answer depends only on the shape and the
  // GPU's capability. For heads above 128 dims only capability 9.x has a backward.
  static bool Computes(const AttentionShape& shape);

  // Also throws if the kernels need more than AttentionWorkBytes or AttentionBackwardWorkBytes.
  void Prepare(const AttentionShape& shape);

  // Launches the bound kernels. Must not outlive this object.
  using Bound = std::function<void(CUstream_st* stream)>;
  Bound Bind(const AttentionArgs<device::Bf16>& args);
  Bound Bind(const AttentionBackwardArgs<device::Bf16>& args);

  // The release of cuDNN, whose rules choose the kernels.
  static std::string Version();

 private:
  class Graphs;
  const std::unique_ptr<Graphs> graphs_;
};

// Converts the starts of documents, [sequences, length], to int32.
int CopyStarts(const DocumentStarts& documents, int64_t sequences, int64_t length, int32_t* to,
               Stream stream);

}  // namespace tandem::ops::cuda
