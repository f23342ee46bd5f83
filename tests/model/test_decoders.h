// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "model/config.h"

namespace tandem::model::test {

// Has two dense layers, and sizes that are not powers of two.
inline DecoderConfig SmallDecoder(bool tied) {
  return {.hidden_size = 24,
          .intermediate_size = 40,
          .num_hidden_layers = 2,
          .num_attention_heads = 4,
          .num_key_value_heads = 2,
          .head_dim = 6,
          .vocab_size = 17,
          .tie_word_embeddings = tied};
}

inline DecoderConfig Llama3_8B() {
  return {.hidden_size = 4096,
          .intermediate_size = 14336,
          .num_hidden_layers = 32,
          .num_attention_heads = 32,
          .num_key_value_heads = 8,
          .head_dim = 128,
          .vocab_size = 128256,
          .rms_norm_eps = 1e-5,
          .rope_theta = 500000};
}

// deepseek-ai/DeepSeek-V3, without its layer that predicts further tokens.
inline DecoderConfig DeepseekV3() {
  return {.hidden_size = 7168,
          .intermediate_size = 18432,
          .num_hidden_layers = 61,
          .num_attention_heads = 128,
          .num_key_value_heads = 128,
          .head_dim = 192,
          .vocab_size = 129280,
          .moe = {.router = {.experts = 256, .top_k = 8, .groups = 8, .groups_per_token = 4},
                  .intermediate_size = 2048,
                  .first_k_dense_replace = 3,
                  .shared_intermediate_size = 2048},
          .latent = {.query_rank = 1536,
                     .kv_rank = 512,
                     .content_head_dim = 128,
                     .rotary_head_dim = 64,
                     .value_head_dim = 128}};
}

// [M*] and M, with names of most models or those of mixers.
inline DecoderConfig SmallHybrid(ParameterNames names) {
  DecoderConfig config{
      .names = names,
      .hidden_size = 8,
      .intermediate_size = 12,
      .num_hidden_layers = 2,
      .num_attention_heads = 2,
      .num_key_value_heads = 1,
      .head_dim = 4,
      .vocab_size = 16,
      .mamba = {.heads = 4, .head_dim = 5, .state = 3, .groups = 2, .conv_width = 4, .chunk = 8}};
  config.pattern = {{LayerSymbol::kMamba, LayerSymbol::kAttention}, {LayerSymbol::kMamba}};
  return config;
}

}  // namespace tandem::model::test
