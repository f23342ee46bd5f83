// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "model/precision.h"
#include "ops/device_kind.h"

namespace tandem::model {

// A decoder-only transformer, resolved: nothing is left to default. Names are Hugging Face's.
struct DecoderConfig {
  int64_t hidden_size = 0;
  int64_t intermediate_size = 0;
  int64_t num_hidden_layers = 0;
  int64_t num_attention_heads = 0;
  int64_t num_key_value_heads = 0;
  int64_t head_dim = 0;
  int64_t vocab_size = 0;
  double rms_norm_eps = 1e-5;
  double rope_theta = 10000;
  bool tie_word_embeddings = false;
  double initializer_range = 0.02;
  std::vector<std::string> frozen_units;  // whose parameters are not trained: they have no gradients
};

bool IsFrozen(const DecoderConfig& config, const std::string& unit);

using ops::DeviceKind;  // what the model computes on: work memory is by the device

// One microbatch: B sequences of S tokens.
struct BatchShape {
  int64_t sequences = 0;
  int64_t sequence_length = 0;
};

enum class Init : uint8_t { kNormal, kOnes };  // kNormal: mean 0, deviation initializer_range

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

// The parameters that are gathered together, in layout order.
struct UnitParameters {
  std::string name;
  int layer =
      -1;  // units of one layer have the same number; embedding and head have numbers behind the layers
  std::vector<std::string> parts;
  std::vector<Parameter> parameters;
  bool frozen = false;  // not trained
};

// Units: "embedding", "layers.0" (parts "attention" and "mlp") ..., "head" (final norm, and lm_head unless
// tied).
std::vector<UnitParameters> DecoderUnits(const DecoderConfig& config);

int64_t NumParameters(const DecoderConfig& config);

// Model FLOPs of one token, forward and backward: 6 × parameters without the input embedding, plus
// causal attention 6·L·H·S, H = heads · head_dim (PaLM, arXiv:2204.02311, appendix B, has 12·L·H·S; causality
// leaves half).
double FlopsPerToken(const DecoderConfig& config, int64_t sequence_length);

}  // namespace tandem::model
