#include "model/config.h"

namespace tandem::model {
namespace {

// Blocks of a decoder layer: what one GEMM uses as one matrix.
constexpr int kQueryKeyValue = 0;
constexpr int kGateUp = 1;

UnitParameters Layer(const DecoderConfig& config, int64_t layer) {
  const int64_t hidden = config.hidden_size;
  const int64_t queries = config.num_attention_heads * config.head_dim;
  const int64_t keys = config.num_key_value_heads * config.head_dim;
  const int64_t inner = config.intermediate_size;
  const std::string prefix = "model.layers." + std::to_string(layer) + ".";
  const int attention = 0;
  const int mlp = 1;
  return {.name = "layers." + std::to_string(layer),
          .parts = {"attention", "mlp"},
          .parameters = {
              {.name = prefix + "input_layernorm.weight",
               .shape = {hidden},
               .part = attention,
               .init = Init::kOnes},
              {prefix + "self_attn.q_proj.weight", {queries, hidden}, attention, kQueryKeyValue},
              {prefix + "self_attn.k_proj.weight", {keys, hidden}, attention, kQueryKeyValue},
              {prefix + "self_attn.v_proj.weight", {keys, hidden}, attention, kQueryKeyValue},
              {prefix + "self_attn.o_proj.weight", {hidden, queries}, attention},
              {.name = prefix + "post_attention_layernorm.weight",
               .shape = {hidden},
               .part = mlp,
               .init = Init::kOnes},
              {prefix + "mlp.gate_proj.weight", {inner, hidden}, mlp, kGateUp},
              {prefix + "mlp.up_proj.weight", {inner, hidden}, mlp, kGateUp},
              {prefix + "mlp.down_proj.weight", {hidden, inner}, mlp},
          }};
}

}  // namespace

int ElementBytes(ComputeType type) { return type == ComputeType::kFp64 ? 8 : 4; }

std::vector<UnitParameters> DecoderUnits(const DecoderConfig& config) {
  std::vector<UnitParameters> units;
  units.push_back({.name = "embedding",
                   .parts = {"embedding"},
                   .parameters = {{"model.embed_tokens.weight", {config.vocab_size, config.hidden_size}}}});
  for (int64_t layer = 0; layer < config.num_hidden_layers; ++layer) {
    units.push_back(Layer(config, layer));
  }
  UnitParameters head{
      .name = "head",
      .parts = {"head"},
      .parameters = {{.name = "model.norm.weight", .shape = {config.hidden_size}, .init = Init::kOnes}}};
  if (!config.tie_word_embeddings) {
    head.parameters.push_back({"lm_head.weight", {config.vocab_size, config.hidden_size}});
  }
  units.push_back(std::move(head));
  return units;
}

int64_t NumParameters(const DecoderConfig& config) {
  int64_t total = 0;
  for (const UnitParameters& unit : DecoderUnits(config)) {
    for (const Parameter& parameter : unit.parameters) {
      int64_t elements = 1;
      for (const int64_t dim : parameter.shape) {
        elements *= dim;
      }
      total += elements;
    }
  }
  return total;
}

double FlopsPerToken(const DecoderConfig& config, int64_t sequence_length) {
  const double embedding = static_cast<double>(config.vocab_size) * static_cast<double>(config.hidden_size);
  double parameters = static_cast<double>(NumParameters(config));
  if (!config.tie_word_embeddings) {
    parameters -= embedding;  // looking up rows is no arithmetic; a tied matrix multiplies in the head
  }
  const double attention = 6.0 * static_cast<double>(config.num_hidden_layers) *
                           static_cast<double>(config.num_attention_heads * config.head_dim) *
                           static_cast<double>(sequence_length);
  return 6.0 * parameters + attention;
}

}  // namespace tandem::model
