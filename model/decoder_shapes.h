// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "model/config.h"
#include "model/router_report.h"
#include "ops/attention_shape.h"
#include "ops/latent_shape.h"

namespace tandem::model {

// The dimensions of a decoder's tensors, for what its nodes declare. In elements unless they say bytes.
struct DecoderShapes {
  DecoderShapes(const DecoderConfig& config, BatchShape batch, ComputeType compute, DeviceKind device,
                bool repeats = true);

  int64_t sequences;      // B
  int64_t length;         // S
  int64_t tokens;         // T = B * S
  int64_t batch_columns;  // BatchShape::columns
  bool packs_documents;
  int64_t hidden;  // H
  int64_t inner;   // I
  int64_t heads;
  int64_t kv_heads;
  int64_t head_dim;
  int64_t vocabulary;     // V
  int64_t logit_columns;  // of the vocabulary, whose logits are in memory at a time; 0: all, for the backward
  int64_t query;          // heads * head_dim
  int64_t key;            // kv_heads * head_dim
  int64_t qkv;            // query + 2 * key
  int64_t compute_bytes;  // of an element
  int64_t statistics_bytes;
  DeviceKind device;
  bool tied;         // the head's matrix is the embedding's
  bool norms_heads;  // DecoderConfig::NormsHeads
  ops::RouterConfig router;
  ops::RouterLossConfig router_losses;
  bool balances_globally;  // BalanceScope::kGlobal
  int64_t data_ranks;      // whose tokens it counts
  ops::RouterCapacity capacity;
  RouterReport report;    // of a microbatch
  bool biased;            // routers have biases, and count tokens for them
  int64_t chosen;         // k: experts of a token
  int64_t expert_inner;   // of an expert
  int64_t expert_ranks;   // P: ranks that share the experts
  int64_t local_experts;  // of one of them
  int64_t first_expert;   // the number of the first of these
  // Tokens that the experts of a rank may see: all of every rank's that chose one of them, each once.
  int64_t seen;
  bool exact_chunks;      // of these only those there are travel
  double fill;            // what is expected of the chunks that travel
  int64_t slots;          // experts of a rank that one token may have
  int64_t room;           // rows that an expert may have: those that it has room for of each rank's tokens
  int64_t padded_rows;    // that every expert has, whatever it is sent; 0: those that it is sent
  int64_t expected_rows;  // of the experts of a rank, where the router is balanced; padded: all
  int64_t most_rows;      // that they may have
  int64_t rows;           // of them that are computed at a time; padded: all
  int64_t expert_passes;  // that compute the most rows there can be
  int64_t shared_inner;   // of the MLP beside the experts; 0: none
  LatentAttention latent;
  bool widens;   // statistics are of a wider type than what is computed in
  bool repeats;  // Precision::repeats

  ops::AttentionShape attention() const {
    return {sequences, length, heads, kv_heads, head_dim, repeats, packs_documents};
  }
  ops::LatentHeads latent_heads() const {
    return {heads, latent.content_head_dim, latent.rotary_head_dim, latent.value_head_dim};
  }

  int64_t chunk_rows() const { return exact_chunks ? 0 : tokens; }  // of PlanSends

  // Floating point operations of a product with T rows.
  double ProductFlops(int64_t inputs, int64_t outputs) const {
    return 2.0 * static_cast<double>(tokens) * static_cast<double>(inputs) * static_cast<double>(outputs);
  }
};

}  // namespace tandem::model
