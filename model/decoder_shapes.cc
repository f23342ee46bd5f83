#include "model/decoder_shapes.h"

namespace tandem::model {
namespace {

constexpr int64_t kAlignment = 64;  // bytes: a cache line, and the widest vector register

int64_t RoundUp(int64_t value, int64_t multiple) { return (value + multiple - 1) / multiple * multiple; }

ScratchLayout Pieces(const DecoderShapes& shapes, const std::vector<int64_t>& elements) {
  ScratchLayout layout;
  for (const int64_t count : elements) {
    layout.offsets.push_back(layout.bytes);
    layout.bytes += RoundUp(count * shapes.element_bytes, kAlignment);
  }
  return layout;
}

// What ops::AttentionWorkElements asks for (that header belongs to the other half; a test compares them):
// packed matrices of one head, and blocks of 32 rows of scores and of head_dim.
int64_t AttentionWork(const DecoderShapes& s, int64_t matrices, int64_t score_blocks, int64_t row_blocks) {
  const int64_t line = kAlignment / s.element_bytes;
  const int64_t length = RoundUp(s.length, 2 * line);
  const int64_t dim = RoundUp(s.head_dim, line);
  return (matrices * dim + score_blocks * 32) * (length + line) + row_blocks * 32 * dim;
}

}  // namespace

DecoderShapes::DecoderShapes(const DecoderConfig& config, BatchShape batch, ComputeType type)
    : sequences(batch.sequences),
      length(batch.sequence_length),
      tokens(batch.sequences * batch.sequence_length),
      hidden(config.hidden_size),
      inner(config.intermediate_size),
      heads(config.num_attention_heads),
      kv_heads(config.num_key_value_heads),
      head_dim(config.head_dim),
      vocabulary(config.vocab_size),
      query(heads * head_dim),
      key(kv_heads * head_dim),
      qkv(query + 2 * key),
      element_bytes(ElementBytes(type)),
      tied(config.tie_word_embeddings) {}

namespace attention_forward {
ScratchLayout Scratch(const DecoderShapes& s) {
  return Pieces(s, {s.tokens * s.hidden, AttentionWork(s, 2, 1, 2)});
}
}  // namespace attention_forward

namespace attention_backward {
ScratchLayout Scratch(const DecoderShapes& s) {
  return Pieces(s, {s.tokens * s.hidden, s.tokens * s.hidden, s.tokens * s.query, s.tokens * s.qkv,
                    AttentionWork(s, 5, 2, 3)});
}
}  // namespace attention_backward

namespace mlp_forward {
ScratchLayout Scratch(const DecoderShapes& s) { return Pieces(s, {s.tokens * s.hidden, s.tokens * s.inner}); }
}  // namespace mlp_forward

namespace mlp_backward {
ScratchLayout Scratch(const DecoderShapes& s) {
  return Pieces(s, {s.tokens * s.hidden, s.tokens * s.hidden, s.tokens * s.inner, s.tokens * 2 * s.inner});
}
}  // namespace mlp_backward

namespace head_forward {
ScratchLayout Scratch(const DecoderShapes& s) { return Pieces(s, {s.tokens * s.hidden, s.tokens}); }
}  // namespace head_forward

namespace head_backward {
ScratchLayout Scratch(const DecoderShapes& s) {
  return Pieces(s, {s.tokens * s.hidden, s.tokens * s.hidden});
}
}  // namespace head_backward

}  // namespace tandem::model
