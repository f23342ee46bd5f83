#include "model/node_kinds.h"

namespace tandem::model {

// hidden[t] = table[tokens[t]].
NodeDeclaration DeclareEmbedding(const DecoderShapes& s) {
  return {
      .kind = schedules::NodeKind::kEmbedding,
      .inputs = {BatchTokens(s)},
      .outputs = {{.tensor = {"hidden", {s.tokens, s.hidden}, ElementType::kHidden}, .gradient = true}},
      .parts = {{.name = "embedding", .parameters = {{"table", {s.vocabulary, s.hidden}}}}},
      .forward = {.reads = {"tokens"}, .writes = {"hidden"}, .parameters = true},
      .backward = {.reads = {"tokens"}, .gradient_reads = {"hidden"}, .parameter_gradients = true},
      .recomputes = true,
  };
}

}  // namespace tandem::model
