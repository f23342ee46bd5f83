// SPDX-License-Identifier: Apache-2.0

#include <stdexcept>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"
#include "model/node_kinds.h"

namespace tandem::model {
namespace {

using schedules::NodeKind;

struct Row {
  NodeKind kind;
  const char* parameter;
  const char* name;  // after "model.layers.N." for what is in a layer; *: the number of an expert
  const char* mixtral = nullptr;  // Mixtral's, where it is another
};

constexpr Row kRows[] = {
    {NodeKind::kEmbedding, "table", "model.embed_tokens.weight"},
    {NodeKind::kAttention, "norm", "input_layernorm.weight"},
    {NodeKind::kAttention, "query", "self_attn.q_proj.weight"},
    {NodeKind::kAttention, "key", "self_attn.k_proj.weight"},
    {NodeKind::kAttention, "value", "self_attn.v_proj.weight"},
    {NodeKind::kAttention, "output", "self_attn.o_proj.weight"},
    {NodeKind::kAttention, "query_norm", "self_attn.q_norm.weight"},
    {NodeKind::kAttention, "key_norm", "self_attn.k_norm.weight"},
    {NodeKind::kAttention, "query_down", "self_attn.q_a_proj.weight"},
    {NodeKind::kAttention, "query_down_norm", "self_attn.q_a_layernorm.weight"},
    {NodeKind::kAttention, "query_up", "self_attn.q_b_proj.weight"},
    {NodeKind::kAttention, "key_value_down", "self_attn.kv_a_proj_with_mqa.weight"},
    {NodeKind::kAttention, "key_value_down_norm", "self_attn.kv_a_layernorm.weight"},
    {NodeKind::kAttention, "key_value_up", "self_attn.kv_b_proj.weight"},
    {NodeKind::kRoute, "norm", "post_attention_layernorm.weight"},
    {NodeKind::kRoute, "router", "mlp.gate.weight", "block_sparse_moe.gate.weight"},
    {NodeKind::kRoute, "bias", "mlp.gate.e_score_correction_bias"},
    {NodeKind::kRoute, "shared_gate", "mlp.shared_experts.gate_proj.weight"},
    {NodeKind::kRoute, "shared_up", "mlp.shared_experts.up_proj.weight"},
    {NodeKind::kRoute, "shared_down", "mlp.shared_experts.down_proj.weight"},
    {NodeKind::kExperts, "gate", "mlp.experts.*.gate_proj.weight", "block_sparse_moe.experts.*.w1.weight"},
    {NodeKind::kExperts, "up", "mlp.experts.*.up_proj.weight", "block_sparse_moe.experts.*.w3.weight"},
    {NodeKind::kExperts, "down", "mlp.experts.*.down_proj.weight", "block_sparse_moe.experts.*.w2.weight"},
    {NodeKind::kMlp, "norm", "post_attention_layernorm.weight"},
    {NodeKind::kMlp, "gate", "mlp.gate_proj.weight"},
    {NodeKind::kMlp, "up", "mlp.up_proj.weight"},
    {NodeKind::kMlp, "down", "mlp.down_proj.weight"},
    {NodeKind::kHead, "norm", "model.norm.weight"},
    {NodeKind::kHead, "weight", "lm_head.weight"},
};

}  // namespace

std::string HuggingFaceName(Architecture architecture, NodeKind kind, const std::string& parameter,
                            int layer) {
  const std::pair<std::string, std::string> split = absl::StrSplit(parameter, absl::MaxSplits('.', 1));
  for (const Row& row : kRows) {
    if (row.kind == kind && row.parameter == split.first) {
      const bool mixtral = architecture == Architecture::kMixtral && row.mixtral != nullptr;
      const std::string name = absl::StrReplaceAll(mixtral ? row.mixtral : row.name, {{"*", split.second}});
      return layer < 0 ? name : absl::StrCat("model.layers.", layer, ".", name);
    }
  }
  throw std::logic_error("parameter " + parameter + " has no name in Hugging Face's models");
}

}  // namespace tandem::model
