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

// Whose names a decoder's parameters have: Mixtral's experts have names of their own. kMixer: of Mamba-2 and
// Nemotron-H, whose layers are one mixer each.
enum class ParameterNames : uint8_t { kUsual, kMixtral, kMixer };

// What a dense MLP does between its products: silu(gate) · up, or relu(up)² without a gate.
enum class Activation : uint8_t { kSwiGlu, kSquaredRelu };

// What is normalised before queries and keys are rotated: each head, or all heads of a token together.
enum class QkNorm : uint8_t { kNone, kHead, kWhole };

// Over what the load of a router is to be even.
enum class BalanceScope : uint8_t {
  kMicrobatch,
  kSequence,  // each of a microbatch
  kGlobal,    // the tokens of all ranks, of a step's microbatches so far (balance.cc)
};

// The sparse layers of a decoder, in which a few of many experts see each token.
struct MixtureOfExperts {
  ops::RouterConfig router;           // experts 0: no layer is sparse
  int64_t intermediate_size = 0;      // of an expert
  int64_t decoder_sparse_step = 1;    // layer L, from 0, is sparse where L + 1 is a multiple of it
  int64_t first_k_dense_replace = 0;  // and where L is at least this
  // The size of a dense MLP beside the experts, which sees every token: what Hugging Face's models call
  // shared experts, side by side. 0: none.
  int64_t shared_intermediate_size = 0;
  double router_aux_loss_coef = 0;  // of the balance (ops/router_losses.h)
  BalanceScope balance_scope = BalanceScope::kMicrobatch;
  int64_t data_ranks = 1;  // that share the global batch: of kGlobal, those whose tokens count
  double router_z_loss_coef = 0;
  ops::RouterCapacity capacity;  // of an expert, for the tokens of a microbatch
  // Once a step the bias of each expert, which its score is chosen by and not weighed, moves so far to where
  // the load is more even (arXiv:2408.15664). 0: there is none. With sigmoid scores only.
  double router_bias_update_rate = 0;
  // The ranks that share the experts of a layer: each has experts / ranks, in the order of their numbers.
  // This is of the one at `rank`.
  int64_t ranks = 1;
  int64_t rank = 0;
  // Ranks send each other only the rows there are, and not a chunk for all tokens.
  bool exact_chunks = false;
  // Rows that a rank has room for of those that ranks send it, as a multiple of what a balanced router sends;
  // a pass that would receive more fails (rows_beyond_room.h). Needs exact chunks. 0: room for all there are.
  double most_rows = 0;
  // Rows of the experts of a rank that are computed at a time, as a multiple of what is expected.
  double rows_at_a_time = 1.5;
};

// Multi-head latent attention (latent_attention.cc). kv_rank 0: heads have projections of their own.
struct LatentAttention {
  int64_t query_rank = 0;  // of the narrow vector that queries come from; 0: they come from the hidden state
  int64_t kv_rank = 0;     // of the one that keys and values come from
  int64_t content_head_dim = 0;  // dims of a query and key that are not rotated
  int64_t rotary_head_dim = 0;   // those that are; of keys all heads share them
  int64_t value_head_dim = 0;
};

// Mamba-2 mixers (mamba.cc). heads 0: no layer is one.
struct MambaMixer {
  int64_t heads = 0;
  int64_t head_dim = 0;    // of x
  int64_t state = 0;       // numbers of state of a channel
  int64_t groups = 0;      // of heads, which share B and C, and whose channels are normalised together
  int64_t conv_width = 0;  // tokens
  int64_t chunk = 0;       // tokens between two states that are kept
  double least_step = 0;   // a shorter step of time is taken for one of this length
};

// Gated delta nets (gated_delta.cc). value_heads 0: no layer is one.
struct GatedDeltaNet {
  int64_t key_heads = 0;    // of queries and keys
  int64_t value_heads = 0;  // of values and states, a multiple of key_heads
  int64_t key_dim = 0;      // of a query or key
  int64_t value_dim = 0;
  int64_t conv_width = 0;  // tokens
  int64_t chunk = 0;       // tokens between two states that are kept
};

// Layers behind the others that predict further tokens (depths.h). number 0: there are none.
struct PredictionDepths {
  int64_t number = 0;
  double loss_weight = 0;  // of the mean of their losses, in what is trained
  bool detached = false;   // they train their own parameters alone
  // Parameters of each letter of a depth have names of their own: "layers.0." and so on go before the usual.
  bool numbers_letters = false;
};

struct NodeKind;  // model/node_kinds.h

// A decoder-only transformer, resolved: nothing is left to default. Names are Hugging Face's.
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
  bool qkv_bias = false;     // is added to queries, keys and values
  bool output_bias = false;  // is added to what an attention's output projection makes
  QkNorm qk_norm = QkNorm::kNone;
  // Dense layers normalise what they add to the hidden state, and not what they read of it.
  bool norms_after = false;
  // In the layers listed, ascending, a token sees itself and the sliding_window - 1 before it. 0: all before
  // it.
  int64_t sliding_window = 0;
  std::vector<int64_t> window_layers;
  bool rotates = true;  // queries and keys, by their place in the sequence
  Activation activation = Activation::kSwiGlu;
  bool tie_word_embeddings = false;
  double initializer_range = 0.02;
  std::vector<std::string> frozen_units;  // whose parameters are not trained: they have no gradients
  // Of a microbatch's logits, in memory at a time (head.cc). Tests set less; else it is one for all jobs.
  int64_t most_logit_bytes = int64_t{1} << 30;
  MixtureOfExperts moe;
  LatentAttention latent;  // head_dim is then that of queries and keys, and every head has its own
  MambaMixer mamba;
  GatedDeltaNet delta;
  PredictionDepths depths;
  // What each layer is made of, in forward order, the depths behind the others; more than one: a group.
  // Empty: an attention, and an MLP or experts.
  std::vector<std::vector<LayerSymbol>> pattern;
  // The kinds of nodes that each layer is made of, in forward order, without those of every depth. Empty:
  // those of the pattern.
  std::vector<std::vector<const NodeKind*>> layers;

  int64_t num_layers() const { return num_hidden_layers + depths.number; }
  // Of a layer, depths behind the others.
  bool Has(int64_t layer, LayerSymbol symbol) const;
  bool IsSparse(int64_t layer) const { return Has(layer, LayerSymbol::kExperts); }
  bool HasWindow(int64_t layer) const;
};

bool IsFrozen(const DecoderConfig& config, const std::string& unit);

using ops::DeviceKind;  // what the model computes on: work memory is by the device

// One microbatch: B sequences of S tokens.
struct BatchShape {
  int64_t sequences = 0;
  int64_t sequence_length = 0;
  bool packs_documents = false;  // a token attends to those of its own document alone
  bool has_targets = false;      // the batch says which targets count; otherwise all do

  int64_t tokens() const { return sequences * sequence_length; }  // and targets

  // The int64 columns of one sequence in the batch: its S + 1 tokens; behind them, where there are targets,
  // the S next tokens, with ops::kNotCounted in place of those that do not count; and behind these, where
  // documents are packed, where the documents of the S rows begin (ops::DocumentStarts).
  int64_t columns() const { return starts_column() + (packs_documents ? sequence_length : 0); }
  int64_t targets_column() const { return has_targets ? sequence_length + 1 : 1; }
  int64_t starts_column() const { return sequence_length + 1 + (has_targets ? sequence_length : 0); }

  // How many targets of a batch [B, columns()] do not count.
  int64_t Uncounted(const int64_t* batch) const;
};

enum class Init : uint8_t {
  kNormal,  // mean 0, deviation initializer_range
  kOnes,
  kZeros,
  kUniform,     // from -1 / sqrt(conv_width) to 1 / sqrt(conv_width), of a mixer
  kTimeSteps,   // whose softplus is log-uniform from 0.001 to 0.1
  kDecayRates,  // whose exponential is uniform from 1 to 16
};

// One named tensor of a unit.
struct Parameter {
  std::string name;  // Hugging Face name
  std::vector<int64_t> shape;
  int part = 0;  // index in UnitParameters::parts
  // Parameters that share a non-negative block are consecutive and one GEMM uses them as one matrix (q, k, v;
  // gate, up).
  int block = -1;
  Init init = Init::kNormal;
};

// The parameters that are gathered together, in layout order: part by part, those in the main type last.
struct UnitParameters {
  // Parameters whose gradients one node writes together.
  struct Part {
    std::string name;
    bool main_type = false;  // they stay in the main type, whatever the unit computes in
  };

  std::string name;
  int layer =
      -1;  // units of one layer have the same number; embedding and head have numbers behind the layers
  bool experts = false;  // sharded over the expert data parallel group
  std::vector<Part> parts;
  std::vector<Parameter> parameters;
  bool frozen = false;  // not trained
};

// Twice the mean number of tokens that a token of a sequence sees, where that many are before it at most: S
// where a window is not shorter, W (2 - W / S) otherwise.
double AttendedLength(int64_t sequence_length, int64_t window);

// The part of a rank's tokens of which some expert is on one certain rank, where the router is balanced.
double ExpectedFill(const MixtureOfExperts& moe);

// Rows that are `multiple` times those that a rank receives of ranks with so many tokens each.
int64_t RowsOfRoom(const MixtureOfExperts& moe, double multiple, int64_t tokens);

// The decoder as one rank would have it, with all experts.
DecoderConfig WithAllExperts(DecoderConfig config);

// Units: "embedding", "layers.0" (parts "attention" and "mlp") ..., "head" (final norm, and lm_head unless
// tied). A sparse layer has the parts "attention" and "router", and a unit "layers.0.experts" beside it,
// which has the experts of config.moe.rank. Depths are "mtp.0" ..., and the first has the final norm, which
// is then not the head's.
std::vector<UnitParameters> DecoderUnits(const DecoderConfig& config);

// The parameters of all ranks together.
int64_t NumParameters(const DecoderConfig& config);

// Those that one token uses: all but the experts that it did not choose.
int64_t NumActiveParameters(const DecoderConfig& config);

// Model FLOPs of one token, forward and backward: 6 × active parameters without the input embedding, 4 ×
// those of frozen units, which have no gradients, plus causal attention 6·L·H·S, H = heads · head_dim (PaLM,
// arXiv:2204.02311, appendix B, has 12·L·H·S; causality leaves half), or where values are of another size
// than keys heads times the mean of both, L the layers that attend; plus 18 for each number of the state of a
// Mamba-2 mixer, and 24 of a gated delta net. With a sliding window of W tokens a layer has as many as there
// are tokens in it: S becomes AttendedLength. The head counts once more for each depth,
// of the tokens that it predicts from.
double FlopsPerToken(const DecoderConfig& config, int64_t sequence_length);

}  // namespace tandem::model
