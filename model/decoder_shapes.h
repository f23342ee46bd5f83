// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstdint>

#include "model/config.h"
#include "model/expert_row_limit.h"
#include "ops/attention_shape.h"
#include "ops/delta_shape.h"
#include "ops/latent_shape.h"
#include "ops/scan_shape.h"

namespace tandem::model {

// The layout of the value "report" that a route node writes for each microbatch: doubles, by index.
struct RouterReport {
  int64_t experts = 0;

  // [0, experts): how many tokens each expert got.
  int64_t dropped() const { return experts; }  // choices that were dropped because the expert was full
  // The losses of ops/router_losses.h without their coefficients; zeros if a balance node computes them.
  int64_t balance() const { return experts + 1; }
  int64_t z() const { return experts + 2; }
  int64_t size() const { return experts + 3; }
};

// The rows of hidden states that a head predicts from: `runs` runs of `length` rows, whose first rows are
// `stride` rows apart.
struct PredictedRows {
  int64_t runs = 0;
  int64_t length = 0;
  int64_t stride = 0;

  int64_t rows() const { return runs * length; }
  // The number of chunks if a chunk has at most `most_rows` rows, all of the same run.
  int64_t Chunks(int64_t most_rows) const { return runs * ((length + most_rows - 1) / most_rows); }
};

// The dimensions of the tensors of a decoder's nodes, from which declarations are made (node_declaration.h).
// Sizes are in elements unless the name says bytes.
struct DecoderShapes {
  DecoderShapes(const DecoderConfig& config, BatchShape batch, ComputeType compute, DeviceKind device,
                bool repeats = true)
      : config(config), batch(batch), compute(compute), device(device), repeats(repeats) {}

  DecoderConfig config;
  BatchShape batch;
  ComputeType compute;
  DeviceKind device;
  bool repeats;           // Precision::repeats
  int64_t depth = 0;      // of the node (depths.h); 0: a node of the model itself
  bool windowed = false;  // the node's layer has a sliding window that is shorter than a sequence

  int64_t sequences = batch.sequences;                       // B
  int64_t length = batch.sequence_length;                    // S
  int64_t tokens = batch.sequences * batch.sequence_length;  // T = B * S
  int64_t batch_columns = batch.columns();
  bool packs_documents = batch.packs_documents;
  int64_t hidden = config.hidden_size;       // H
  int64_t inner = config.intermediate_size;  // I
  int64_t heads = config.num_attention_heads;
  int64_t kv_heads = config.num_key_value_heads;
  int64_t head_dim = config.head_dim;
  // The number of a head's dims that are rotated; they are the first ones.
  int64_t rotary = static_cast<int64_t>(config.partial_rotary_factor * static_cast<double>(head_dim));
  int64_t vocabulary = config.vocab_size;  // V
  int64_t query = heads * head_dim;
  int64_t key = kv_heads * head_dim;
  int64_t qkv = query + 2 * key;
  bool gates_attention = config.attention_gate;
  int64_t projected_qkv = qkv + (gates_attention ? query : 0);  // with the gate of each query head behind it
  int64_t compute_bytes = ElementBytes(compute);                // of one element
  // The number of tokens whose logits are in memory at a time: all, or fewer if all take too much. The logits
  // of all depths are in memory together.
  int64_t logit_rows =
      RowsOfChunk(tokens, vocabulary* compute_bytes, config.most_logit_bytes / (1 + config.depths.number));
  int64_t statistics_bytes = ElementBytes(MainType(compute));
  bool tied = config.tie_word_embeddings;  // the head uses the embedding's matrix
  bool qkv_bias = config.qkv_bias;
  bool output_bias = config.output_bias;
  bool norms_heads = config.qk_norm == QkNorm::kHead;
  bool norms_whole = config.qk_norm == QkNorm::kWhole;  // one norm covers the queries, or keys, of all heads
  bool norms_qk = norms_heads || norms_whole;
  bool norms_after = config.norms_after;
  // The sliding window of the layers that have one. 0: there is none, or it is not shorter than a sequence.
  int64_t window = config.sliding_window < length ? config.sliding_window : 0;
  double residual_multiplier = config.residual_multiplier;
  double logits_multiplier = 1 / config.logits_scaling;
  // The residual multiplier is applied to the router's probabilities, by which the experts' outputs are
  // multiplied.
  ops::RouterConfig router = Scaled(config.moe.router, config.residual_multiplier);
  ops::RouterLossConfig router_losses{
      .sequence_length = config.moe.balance_scope == BalanceScope::kSequence ? length : tokens,
      .balance = config.moe.router_aux_loss_coef,
      .z = config.moe.router_z_loss_coef};
  // Whether the routers' own losses count only the tokens whose targets count.
  bool weighs_losses = batch.has_targets && (router_losses.balance > 0 || router_losses.z > 0);
  bool balances_globally = config.moe.balance_scope == BalanceScope::kGlobal;
  int64_t data_ranks = config.moe.data_ranks;  // ranks whose tokens the balance counts
  ops::RouterCapacity capacity = config.moe.capacity;
  RouterReport report{.experts = router.experts};  // of one microbatch
  // Whether routers have biases. If so, routers count each expert's tokens, by which the biases are updated.
  bool biased = config.moe.router_bias_update_rate > 0;
  int64_t chosen = router.top_k;                           // k: experts that one token chooses
  int64_t expert_inner = config.moe.intermediate_size;     // of each expert
  int64_t expert_ranks = config.moe.ranks;                 // P: ranks that share the experts
  int64_t local_experts = router.experts / expert_ranks;   // experts on one of these ranks
  int64_t first_expert = config.moe.rank * local_experts;  // the number of the first of these experts
  // The most rows that the experts of a rank may receive. A token counts once for each rank that has an
  // expert it chose.
  int64_t seen = MostReceived(config.moe, tokens);
  bool exact_chunks = config.moe.exact_chunks;  // only rows that exist travel
  // The expected fraction of an exchanged chunk that holds rows.
  double fill = exact_chunks ? ExpectedFill(config.moe) : 1;
  int64_t slots = std::min(chosen, local_experts);  // the most experts of one rank that a token can choose
  // The most rows of one expert: its capacity for the tokens of each rank, over all ranks.
  int64_t room = expert_ranks * ops::CapacityOf(router, capacity, tokens);
  // The rows of each expert if the experts' rows are padded to a fixed number; otherwise 0.
  int64_t padded_rows = capacity.pads ? room : 0;
  // The rows that all experts of a rank have together: in every step if they are padded, otherwise if the
  // routers are balanced.
  int64_t expected_rows =
      capacity.pads ? local_experts * room : std::min(local_experts * room, tokens* chosen);
  // The most rows that all experts of a rank can have together.
  int64_t most_rows = capacity.pads ? expected_rows : std::min(local_experts * room, seen* slots);
  // The rows that are computed at a time; all of them if they are padded.
  int64_t rows = RowsAtATime(config.moe.rows_at_a_time, expected_rows, most_rows);
  // Passes over the experts if they have `most_rows`.
  int64_t expert_passes = rows == 0 ? 0 : (most_rows + rows - 1) / rows;
  // The intermediate size of the MLP beside the experts; 0: there is none.
  int64_t shared_inner = config.moe.shared_intermediate_size;
  bool gates_shared = config.moe.shared_gate;
  LatentAttention latent = config.latent;
  MambaMixer mamba = config.mamba;
  ops::ScanShape scan{.sequences = sequences,
                      .length = length,
                      .heads = mamba.heads,
                      .head_dim = mamba.head_dim,
                      .groups = mamba.groups,
                      .state = mamba.state,
                      .chunk = mamba.chunk,
                      .least_step = mamba.least_step};
  // Output columns of a Mamba-2 mixer's first projection.
  int64_t mixer_columns = scan.inner() + scan.channels() + scan.heads;
  ops::DeltaShape delta{.sequences = sequences,
                        .length = length,
                        .key_heads = config.delta.key_heads,
                        .value_heads = config.delta.value_heads,
                        .key_dim = config.delta.key_dim,
                        .value_dim = config.delta.value_dim,
                        .chunk = config.delta.chunk};
  int64_t delta_conv_width = config.delta.conv_width;
  bool rotates = config.rotates;
  bool widens = compute == ComputeType::kBf16;  // statistics have a wider type than computation

  // A sliding window uses the argument for packed documents: the first row that a row sees is passed as the
  // beginning of the row's document.
  ops::AttentionShape attention() const {
    return {sequences,
            length,
            heads,
            kv_heads,
            head_dim,
            repeats,
            packs_documents || windowed,
            config.attention_multiplier};
  }
  ops::LatentHeads latent_heads() const {
    return {heads, latent.content_head_dim, latent.rotary_head_dim, latent.value_head_dim};
  }

  PredictedRows predicted() const {
    return depth == 0 ? PredictedRows{1, tokens, tokens} : PredictedRows{sequences, length - depth, length};
  }

  // The rows that ranks would exchange if each token went to every rank.
  int64_t all_rows() const { return expert_ranks * tokens; }
  // The rows that a rank may send.
  int64_t sent_rows() const {
    return config.moe.most_rows > 0 ? tokens * std::min(expert_ranks, chosen) : all_rows();
  }
  // The expected fraction of memory for `rows` exchanged rows that is used.
  double FillOf(int64_t rows) const {
    return rows == all_rows()
               ? fill
               : std::min(1.0, fill * static_cast<double>(all_rows()) / static_cast<double>(rows));
  }
  int64_t chunk_rows() const { return exact_chunks ? 0 : tokens; }  // the argument of ops' PlanSends

  // The elements of T rows.
  double Elements(int64_t columns) const {
    return static_cast<double>(tokens) * static_cast<double>(columns);
  }

  // The floating-point operations of a product with T rows.
  double ProductFlops(int64_t inputs, int64_t outputs) const {
    return 2.0 * static_cast<double>(tokens) * static_cast<double>(inputs) * static_cast<double>(outputs);
  }

 private:
  static ops::RouterConfig Scaled(ops::RouterConfig router, double factor) {
    router.scale *= factor;
    return router;
  }
  static int64_t MostReceived(const MixtureOfExperts& moe, int64_t tokens);
  static int64_t RowsOfChunk(int64_t rows, int64_t row_bytes, int64_t most_bytes);
  static int64_t RowsAtATime(double multiple, int64_t expected, int64_t most);
};

}  // namespace tandem::model
