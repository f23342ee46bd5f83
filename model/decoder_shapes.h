#pragma once

#include <cstdint>
#include <vector>

#include "model/config.h"

namespace tandem::model {

// The sizes of a decoder's values and scratch memory, in one place: the outline predicts with them and the
// nodes allocate with them. Torch-free. Sizes are in elements unless they say bytes.
struct DecoderShapes {
  DecoderShapes(const DecoderConfig& config, BatchShape batch, ComputeType type);

  int64_t sequences;  // B
  int64_t length;     // S
  int64_t tokens;     // T = B * S
  int64_t hidden;     // H
  int64_t inner;      // I
  int64_t heads;
  int64_t kv_heads;
  int64_t head_dim;
  int64_t vocabulary;  // V
  int64_t query;       // heads * head_dim
  int64_t key;         // kv_heads * head_dim
  int64_t qkv;         // query + 2 * key
  int64_t element_bytes;
  bool tied;  // the head's matrix is the embedding's

  // Floating point operations of a product with T rows.
  double ProductFlops(int64_t inputs, int64_t outputs) const {
    return 2.0 * static_cast<double>(tokens) * static_cast<double>(inputs) * static_cast<double>(outputs);
  }
};

// Where the pieces of a pass's scratch memory lie in its byte tensor, in the order of the pass's
// enumeration. Each starts at a multiple of 64 bytes.
struct ScratchLayout {
  std::vector<int64_t> offsets;  // bytes
  int64_t bytes = 0;             // of all pieces
};

namespace attention_forward {
enum Piece { kNormed, kWork };  // [T, H]; of the attention kernel
ScratchLayout Scratch(const DecoderShapes& shapes);
}  // namespace attention_forward

namespace attention_backward {
enum Piece { kNormed, kGradNormed, kGradContext, kGradQkv, kWork };  // [T, H], [T, H], [T, query], [T, qkv]
ScratchLayout Scratch(const DecoderShapes& shapes);
}  // namespace attention_backward

namespace mlp_forward {
enum Piece { kNormed, kActivated };  // [T, H], [T, I]
ScratchLayout Scratch(const DecoderShapes& shapes);
}  // namespace mlp_forward

namespace mlp_backward {
enum Piece { kNormed, kGradNormed, kActivated, kGradGateUp };  // [T, H], [T, H], [T, I], [T, 2 I]
ScratchLayout Scratch(const DecoderShapes& shapes);
}  // namespace mlp_backward

namespace head_forward {
enum Piece { kNormed, kLogSumExp };  // [T, H], [T]
ScratchLayout Scratch(const DecoderShapes& shapes);
}  // namespace head_forward

namespace head_backward {
enum Piece { kNormed, kGradNormed };  // [T, H], [T, H]
ScratchLayout Scratch(const DecoderShapes& shapes);
}  // namespace head_backward

}  // namespace tandem::model
