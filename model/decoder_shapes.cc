// SPDX-License-Identifier: Apache-2.0
#include "model/decoder_shapes.h"

#include <algorithm>
#include <cmath>

namespace tandem::model {
namespace {

int64_t RowsAtATime(double multiple, int64_t expected, int64_t most) {
  return std::min(most, static_cast<int64_t>(std::ceil(multiple * static_cast<double>(expected))));
}

// The columns of a block of logits, where those of no more than one are to be in memory: a quarter of the
// vocabulary, or fewer, that products are fast with and that are about kMostLogits elements at most.
constexpr int64_t kMostLogits = int64_t{1} << 28;
constexpr int64_t kColumnsTogether = 64;

int64_t ColumnsOfBlock(int64_t tokens, int64_t vocabulary) {
  const int64_t most = std::min((vocabulary + 3) / 4, std::max<int64_t>(1, kMostLogits / tokens));
  const int64_t whole = (most + kColumnsTogether - 1) / kColumnsTogether * kColumnsTogether;
  return std::min(vocabulary, whole);
}

}  // namespace

DecoderShapes::DecoderShapes(const DecoderConfig& config, BatchShape batch, ComputeType compute,
                             DeviceKind device, bool repeats)
    : sequences(batch.sequences),
      length(batch.sequence_length),
      tokens(batch.sequences * batch.sequence_length),
      batch_columns(batch.columns()),
      packs_documents(batch.packs_documents),
      hidden(config.hidden_size),
      inner(config.intermediate_size),
      heads(config.num_attention_heads),
      kv_heads(config.num_key_value_heads),
      head_dim(config.head_dim),
      vocabulary(config.vocab_size),
      logit_columns(config.keeps_logits ? 0 : ColumnsOfBlock(tokens, vocabulary)),
      query(heads * head_dim),
      key(kv_heads * head_dim),
      qkv(query + 2 * key),
      compute_bytes(ElementBytes(compute)),
      statistics_bytes(ElementBytes(MainType(compute))),
      device(device),
      tied(config.tie_word_embeddings),
      norms_heads(config.NormsHeads()),
      router(config.moe.router),
      router_losses{.sequence_length = config.moe.balance_scope == BalanceScope::kSequence ? length : tokens,
                    .balance = config.moe.router_aux_loss_coef,
                    .z = config.moe.router_z_loss_coef},
      balances_globally(config.moe.balance_scope == BalanceScope::kGlobal),
      data_ranks(config.moe.data_ranks),
      capacity(config.moe.capacity),
      report{.experts = router.experts},
      biased(config.moe.router_bias_update_rate > 0),
      chosen(router.top_k),
      expert_inner(config.moe.intermediate_size),
      expert_ranks(config.moe.ranks),
      local_experts(router.experts / expert_ranks),
      first_expert(config.moe.rank * local_experts),
      seen(expert_ranks * tokens),
      exact_chunks(config.moe.exact_chunks),
      fill(exact_chunks ? ExpectedFill(config.moe) : 1),
      slots(std::min(chosen, local_experts)),
      room(expert_ranks * ops::CapacityOf(router, capacity, tokens)),
      padded_rows(capacity.pads ? room : 0),
      expected_rows(capacity.pads ? local_experts * room : std::min(tokens * chosen, local_experts * room)),
      most_rows(capacity.pads ? expected_rows : std::min(seen * slots, local_experts * room)),
      rows(RowsAtATime(config.moe.rows_at_a_time, expected_rows, most_rows)),
      expert_passes(rows == 0 ? 0 : (most_rows + rows - 1) / rows),
      shared_inner(config.moe.shared_intermediate_size),
      latent(config.latent),
      widens(compute == ComputeType::kBf16),
      repeats(repeats) {}

}  // namespace tandem::model
