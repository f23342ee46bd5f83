// SPDX-License-Identifier: Apache-2.0
#include "model/decoder_shapes.h"

namespace tandem::model {

DecoderShapes::DecoderShapes(const DecoderConfig& config, BatchShape batch, ComputeType compute,
                             DeviceKind device)
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
      compute_bytes(ElementBytes(compute)),
      device(device),
      tied(config.tie_word_embeddings),
      norms_heads(config.NormsHeads()),
      router(config.moe.router),
      router_losses{.sequence_length = tokens,
                    .balance = config.moe.router_aux_loss_coef,
                    .z = config.moe.router_z_loss_coef},
      report{.experts = router.experts},
      chosen(router.top_k),
      rows(tokens * chosen),
      expert_inner(config.moe.intermediate_size),
      shared_inner(config.moe.shared_intermediate_size),
      latent(config.latent),
      widens(compute == ComputeType::kBf16) {}

}  // namespace tandem::model
