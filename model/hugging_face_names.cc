// SPDX-License-Identifier: Apache-2.0
#include "model/hugging_face_names.h"

#include <stdexcept>

namespace tandem::model {
namespace {

using schedules::NodeKind;

struct Row {
  NodeKind kind;
  const char* parameter;
  const char* name;  // after "model.layers.N." for what is in a layer
};

constexpr Row kRows[] = {
    {NodeKind::kEmbedding, "table", "model.embed_tokens.weight"},
    {NodeKind::kAttention, "norm", "input_layernorm.weight"},
    {NodeKind::kAttention, "query", "self_attn.q_proj.weight"},
    {NodeKind::kAttention, "key", "self_attn.k_proj.weight"},
    {NodeKind::kAttention, "value", "self_attn.v_proj.weight"},
    {NodeKind::kAttention, "output", "self_attn.o_proj.weight"},
    {NodeKind::kMlp, "norm", "post_attention_layernorm.weight"},
    {NodeKind::kMlp, "gate", "mlp.gate_proj.weight"},
    {NodeKind::kMlp, "up", "mlp.up_proj.weight"},
    {NodeKind::kMlp, "down", "mlp.down_proj.weight"},
    {NodeKind::kHead, "norm", "model.norm.weight"},
    {NodeKind::kHead, "weight", "lm_head.weight"},
};

}  // namespace

std::string HuggingFaceName(NodeKind kind, const std::string& parameter, int layer) {
  for (const Row& row : kRows) {
    if (row.kind == kind && row.parameter == parameter) {
      return layer < 0 ? row.name : "model.layers." + std::to_string(layer) + "." + row.name;
    }
  }
  throw std::logic_error("parameter " + parameter + " has no name in Hugging Face's models");
}

}  // namespace tandem::model
