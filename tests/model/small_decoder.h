// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "model/config.h"

namespace tandem::model::test {

// Of two dense layers; sizes that are no powers of two.
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

}  // namespace tandem::model::test
