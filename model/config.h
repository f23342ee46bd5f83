// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "model/layer_pattern.h"
#include "model/precision.h"
#include "ops/device_kind.h"
#include "ops/rope_scaling.h"
#include "ops/router_config.h"

namespace tandem::model {

// The naming scheme of a decoder's parameters. kMixer is that of Mamba-2 and Nemotron-H, whose layers have
// one mixer each. The others are named after their families; kMixtral differs only in the names of experts.
enum class ParameterNames : uint8_t { kUsual, kMixtral, kMixer, kGranite, kBamba, kQwen3Next, kOlmo2 };

// What a dense MLP computes between its two matrix products: silu(gate) · up, or relu(up)² without a gate.
enum class Activation : uint8_t { kSwiGlu, kSquaredRelu };

// Whether queries and keys are normalised before they are rotated: not at all, each head alone, or all heads
// of a token together.
enum class QkNorm : uint8_t { kNone, kHead, kWhole };

// The tokens over which a router's load should be even.
enum class BalanceScope : uint8_t {
  kMicrobatch,
  kSequence,  // each sequence of a microbatch alone
  kGlobal,    // the tokens of all ranks in the step's microbatches so far (route.cc)
};

// The sparse layers of a decoder. In these, each token visits a few of many experts.
struct MixtureOfExperts {
  ops::RouterConfig router;           // if its `experts` is 0, no layer is sparse
  int64_t intermediate_size = 0;      // of each expert
  int64_t decoder_sparse_step = 1;    // layer L, from 0, is sparse if L + 1 is a multiple of this ...
  int64_t first_k_dense_replace = 0;  // ... and L is at least this
  // The intermediate size of a dense MLP beside the experts, which every token visits; 0: there is none.
  // Hugging Face's shared experts are computed as one such MLP, whose size is the sum of theirs.
  int64_t shared_intermediate_size = 0;
  // If true, the output of that MLP is multiplied by the sigmoid of a gate.
  bool shared_gate = false;
  double router_aux_loss_coef = 0;  // coefficient of the balance loss (ops/router_losses.h)
  BalanceScope balance_scope = BalanceScope::kMicrobatch;
  int64_t data_ranks = 1;  // ranks that share the global batch; kGlobal counts their tokens
  double router_z_loss_coef = 0;
  ops::RouterCapacity capacity;  // of each expert, for the tokens of a microbatch
  // How far each expert's bias moves once a step, towards an even load (arXiv:2408.15664). Biases take part
  // in the choice of experts, but not in the weights of the chosen ones. 0: there are no biases. Needs
  // sigmoid scores.
  double router_bias_update_rate = 0;
  // The number of ranks that share the experts of a layer, and this rank's number among them. Rank r has the
  // experts from r * experts / ranks on, experts / ranks of them.
  int64_t ranks = 1;
  int64_t rank = 0;
  // If true, ranks exchange only the rows that exist, instead of chunks with space for all tokens.
  bool exact_chunks = false;
  // For how many received rows a rank has memory, as a multiple of the number that balanced routers send it.
  // A pass that would receive more fails (expert_row_limit.h). Needs exact_chunks. 0: the memory suffices for
  // any routing.
  double most_rows = 0;
  // How many rows the experts of a rank compute at a time, as a multiple of the number that they get if
  // routers are balanced.
  double rows_at_a_time = 1.5;
};

// Multi-head latent attention (latent_attention.cc). If kv_rank is 0, attention is not latent.
struct LatentAttention {
  int64_t query_rank = 0;        // size of the vector that queries are projected from; 0: the hidden state
  int64_t kv_rank = 0;           // size of the vector that keys and values are projected from
  int64_t content_head_dim = 0;  // dims of a query or key that are not rotated
  int64_t rotary_head_dim = 0;   // dims that are rotated; all heads share these dims of the key
  int64_t value_head_dim = 0;
};

// Mamba-2 mixers (mamba.cc). If heads is 0, no layer is a mixer.
struct MambaMixer {
  int64_t heads = 0;
  int64_t head_dim = 0;    // channels of x in a head
  int64_t state = 0;       // size of the state of one channel
  int64_t groups = 0;      // the heads of a group share B and C, and a norm covers the group's channels
  int64_t conv_width = 0;  // in tokens
  int64_t chunk = 0;       // a state is kept for the backward every so many tokens
  double least_step = 0;   // shorter time steps are lengthened to this
};

// Gated delta nets (gated_delta.cc). If value_heads is 0, no layer is one.
struct GatedDeltaNet {
  int64_t key_heads = 0;    // heads of queries and keys
  int64_t value_heads = 0;  // heads of values and states; a multiple of key_heads
  int64_t key_dim = 0;      // size of a query or key in one head
  int64_t value_dim = 0;
  int64_t conv_width = 0;  // in tokens
  int64_t chunk = 0;       // a state is kept for the backward every so many tokens
};

// The layers that predict further tokens, after the model's other layers (depths.h). If number is 0, there
// are none.
struct PredictionDepths {
  int64_t number = 0;
  double loss_weight = 0;  // weight of the mean of their losses in the trained loss
  bool detached = false;   // if true, their losses train only their own parameters
  // If true, parameter names contain the index that the letter of their layer (layer_pattern.h) has in the
  // depth: "layers.0." before the usual name.
  bool numbers_letters = false;
};

struct NodeKind;  // model/node_kinds.h

// A decoder-only transformer with every default filled in. The fields have Hugging Face's names.
struct DecoderConfig {
  ParameterNames names = ParameterNames::kUsual;
  int64_t hidden_size = 0;
  int64_t intermediate_size = 0;
  int64_t num_hidden_layers = 0;
  int64_t num_attention_heads = 0;
  int64_t num_key_value_heads = 0;
  int64_t head_dim = 0;
  int64_t vocab_size = 0;
  double rms_norm_eps = 1e-5;
  double rope_theta = 10000;
  ops::RopeScaling rope_scaling;
  bool qkv_bias = false;     // queries, keys and values have a bias
  bool output_bias = false;  // attention's output projection has a bias
  QkNorm qk_norm = QkNorm::kNone;
  // If true, the input of attention's output projection is multiplied by the sigmoid of gates. The projection
  // of queries computes them too: the gates of a head follow its query.
  bool attention_gate = false;
  bool norms_add_one = false;  // norms multiply by 1 + weight, except norms of gated values
  // If true, dense layers normalise what they add to the hidden state instead of what they read from it.
  bool norms_after = false;
  // In the layers listed below (ascending), a token sees itself and the sliding_window - 1 tokens before it.
  // 0: a token sees all tokens before it.
  int64_t sliding_window = 0;
  std::vector<int64_t> window_layers;
  bool rotates = true;               // queries and keys are rotated by their place in the sequence
  double partial_rotary_factor = 1;  // the share of a head's dims, the first ones, that are rotated
  // Factors: of the embedding's rows, of the products of queries and keys (0: 1 / sqrt(head_dim)), and of
  // what each node adds to the hidden state. logits_scaling divides the logits.
  double embedding_multiplier = 1;
  double attention_multiplier = 0;
  double residual_multiplier = 1;
  double logits_scaling = 1;
  Activation activation = Activation::kSwiGlu;
  bool tie_word_embeddings = false;
  double initializer_range = 0.02;
  std::vector<std::string> frozen_units;  // units whose parameters are not trained and have no gradients
  // The most bytes of logits in memory at a time (head.cc). Only tests change it.
  int64_t most_logit_bytes = int64_t{1} << 30;
  MixtureOfExperts moe;
  LatentAttention latent;  // if set, head_dim is the size of a query or key, and every head has its own keys
  MambaMixer mamba;
  GatedDeltaNet delta;
  PredictionDepths depths;
  // The letters of each layer in forward order, the depths last; a layer of several letters is a group.
  // Empty: each layer is an attention and an MLP, or an attention and experts.
  std::vector<std::vector<LayerSymbol>> pattern;
  // The kinds of nodes in each layer, in forward order, without the kinds that belong to every depth. Empty:
  // the kinds follow from `pattern`.
  std::vector<std::vector<const NodeKind*>> layers;

  int64_t num_layers() const { return num_hidden_layers + depths.number; }
  // Whether layer `layer` contains the letter `symbol`. Depths are numbered after the other layers.
  bool Has(int64_t layer, LayerSymbol symbol) const;
  bool IsSparse(int64_t layer) const { return Has(layer, LayerSymbol::kExperts); }
  bool HasWindow(int64_t layer) const;
};

bool IsFrozen(const DecoderConfig& config, const std::string& unit);

using ops::DeviceKind;  // the device that the model computes on; it determines work memory

// One microbatch: B sequences of S tokens.
struct BatchShape {
  int64_t sequences = 0;
  int64_t sequence_length = 0;
  bool packs_documents = false;  // if true, a token attends only to tokens of its own document
  bool has_targets = false;      // if true, the batch says which targets count; otherwise all do

  int64_t tokens() const { return sequences * sequence_length; }  // also the number of targets

  // The number of int64 columns that one sequence has in the batch. The S + 1 tokens come first. If
  // has_targets, the S next tokens follow, with ops::kNotCounted in place of those that do not count. If
  // packs_documents, the first row of each of the S rows' documents follows (ops::DocumentStarts).
  int64_t columns() const { return starts_column() + (packs_documents ? sequence_length : 0); }
  int64_t targets_column() const { return has_targets ? sequence_length + 1 : 1; }
  int64_t starts_column() const { return sequence_length + 1 + (has_targets ? sequence_length : 0); }

  // How many targets of a batch [B, columns()] do not count.
  int64_t Uncounted(const int64_t* batch) const;
};

// Returns `config` as for a single rank, which has all experts.
DecoderConfig WithAllExperts(DecoderConfig config);

}  // namespace tandem::model
