// SPDX-License-Identifier: Apache-2.0
#include "model/node_kinds.h"
#include "ops/row_work.h"

namespace tandem::model {
namespace {

// hidden[t] = multiplier · table[tokens[t]].
NodeDeclaration DeclareEmbedding(const DecoderShapes& s) {
  return {
      .inputs = {BatchTokens(s)},
      .outputs = {{.tensor = {"hidden", {s.tokens, s.hidden}, ElementType::kHidden}, .gradient = true}},
      .parts = {{.name = "embedding", .parameters = {{"table", {s.vocabulary, s.hidden}}}}},
      .forward = {.reads = {"tokens"}, .parameters = true},
      .backward_input =
          {.reads = {"tokens"},
           .gradient_reads = {"hidden"},
           .parameter_gradients = true,
           .scratch = {{"work", {ops::EmbeddingBackwardWorkBytes(s.device, s.tokens)}, ElementType::kByte}}},
      .recomputes = true,
  };
}

constexpr ParameterName kEmbeddingNames[] = {
    {"table", "model.embed_tokens.weight", nullptr, "backbone.embeddings.weight"},
};

}  // namespace

constinit const NodeKind kEmbedding = {
    .name = "embedding", .declare = DeclareEmbedding, .names = kEmbeddingNames};

}  // namespace tandem::model
