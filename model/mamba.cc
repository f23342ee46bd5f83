// SPDX-License-Identifier: Apache-2.0
#include <string>
#include <utility>
#include <vector>

#include "model/node_kinds.h"
#include "ops/mixer_work.h"

namespace tandem::model {
namespace {

// The parameters that decide how fast a state decays stay in the main type, because exponentials of them are
// multiplied over thousands of tokens.
std::vector<PartSpec> MambaParts(const DecoderShapes& s) {
  return {{.name = "mamba",
           .parameters = {NormOver(s, "norm", s.hidden),
                          {.name = "in_proj", .shape = {s.mixer_columns, s.hidden}},
                          {.name = "conv",
                           .shape = {s.scan.channels(), 1, s.mamba.conv_width},
                           .init = Init::kUniform,
                           .gradient_is_statistics = true},
                          VectorOf("conv_bias", s.scan.channels(), Init::kUniform),
                          VectorOf("gate_norm", s.scan.inner(), Init::kOnes),
                          {.name = "out_proj", .shape = {s.hidden, s.scan.inner()}}}},
          {.name = "scan",
           .parameters = {VectorOf("dt_bias", s.scan.heads, Init::kTimeSteps),
                          VectorOf("a_log", s.scan.heads, Init::kDecayRates),
                          VectorOf("d", s.scan.heads, Init::kOnes)},
           .main_type = true}};
}

// Counts the recurrence: each number of a state decays, gets its part of x ⊗ B, and is multiplied by C.
double ScanFlops(const DecoderShapes& s) {
  return 3 * s.ProductFlops(1, s.scan.inner()) * static_cast<double>(s.scan.state);
}

// A Mamba-2 mixer (Dao and Gu, arXiv:2405.21060):
//   [z | xBC | steps] = Win · norm(x); xBC = silu(conv(xBC)); y = scan(xBC, steps)
//   hidden = x + multiplier · Wout · gate_norm(y · silu(z))
// The forward keeps what Win gives, y, and the states before each chunk. The backward convolves again, and
// computes the gradients of all but the two matrices on the way to that of x; the weight half has the rest.
NodeDeclaration DeclareMamba(const DecoderShapes& s) {
  const int64_t inner = s.scan.inner();
  const double in = s.ProductFlops(s.hidden, s.mixer_columns);
  const double out = s.ProductFlops(inner, s.hidden);
  const double scan = ScanFlops(s);
  const double norm = s.Elements(2 * s.hidden);
  const double conv = s.Elements(2 * s.scan.channels());
  const double gate = s.Elements(3 * inner);
  const TensorSpec xbc{"xbc", {s.tokens, s.scan.channels()}};
  std::vector<TensorSpec> intermediates = {{"normed", {s.tokens, s.hidden}},
                                           {"gated", {s.tokens, inner}},
                                           {"grad_projected", {s.tokens, s.mixer_columns}}};
  const std::vector<PartSpec> parts = MambaParts(s);
  AddStatisticsGradients(parts, intermediates);
  NodeDeclaration declaration{
      .inputs = {HiddenState("x", s)},
      .outputs = {{.tensor = {"hidden", {s.tokens, s.hidden}, ElementType::kHidden},
                   .gradient = true,
                   .computed_from = {"y"},
                   .flops = out},
                  {.tensor = {"projected", {s.tokens, s.mixer_columns}}},
                  {.tensor = {"y", {s.tokens, inner}},
                   .computed_from = {"projected", "states"},
                   .flops = scan},
                  {.tensor = {"states", {s.scan.kept()}, ElementType::kStatistics},
                   .computed_from = {"projected", "y"}}},
      .parts = parts,
      .forward = {.reads = {"x"},
                  .parameters = true,
                  .scratch = {{"normed", {s.tokens, s.hidden}},
                              xbc,
                              {"gated", {s.tokens, inner}},
                              {"scan_work",
                               {ops::StateScanWorkBytes(s.device, s.scan, s.compute_bytes)},
                               ElementType::kByte},
                              ProductsWork(s)},
                  .flops = in + out + scan,
                  .row_elements = norm + conv + gate},
      .backward_input =
          {.reads = {"x", "projected", "y", "states"},
           .gradient_reads = {"hidden"},
           .gradient_writes = {"x"},
           .parameters = true,
           .scratch = {{"grad_normed", {s.tokens, s.hidden}},
                       {"grad_gated", {s.tokens, inner}},
                       {"grad_y", {s.tokens, inner}},
                       xbc,
                       {"grad_xbc", {s.tokens, s.scan.channels()}},
                       {"scan_work",
                        {ops::StateScanBackwardWorkBytes(s.device, s.scan, s.compute_bytes)},
                        ElementType::kByte},
                       {"conv_work",
                        {ops::CausalConvBackwardWorkBytes(s.device, s.sequences, s.length, s.scan.channels(),
                                                          s.mamba.conv_width, s.compute_bytes)},
                        ElementType::kByte},
                       {"gate_work",
                        {ops::GatedNormBackwardWorkBytes(s.device, s.tokens, inner, s.compute_bytes)},
                        ElementType::kByte},
                       NormWork(s),
                       ProductsWork(s)},
           .flops = in + out + 3 * scan,
           .row_elements = 3 * norm + 3 * conv + 3 * gate},
      .intermediates = std::move(intermediates),
      .backward_weight = PassSpec{.gradient_reads = {"hidden"},
                                  .parameter_gradients = true,
                                  .scratch = {ProductsWork(s)},
                                  .flops = in + out},
      .recomputes = true,
  };
  ReadDocuments(s, declaration);
  return declaration;
}

constexpr ParameterName kMambaNames[] = {
    {"norm", "mamba_layernorm.weight", nullptr, "norm.weight"},
    {"in_proj", "mamba.in_proj.weight", nullptr, "mixer.in_proj.weight"},
    {"conv", "mamba.conv1d.weight", nullptr, "mixer.conv1d.weight"},
    {"conv_bias", "mamba.conv1d.bias", nullptr, "mixer.conv1d.bias"},
    {"dt_bias", "mamba.dt_bias", nullptr, "mixer.dt_bias"},
    {"a_log", "mamba.A_log", nullptr, "mixer.A_log"},
    {"d", "mamba.D", nullptr, "mixer.D"},
    {"gate_norm", "mamba.norm.weight", nullptr, "mixer.norm.weight"},
    {"out_proj", "mamba.out_proj.weight", nullptr, "mixer.out_proj.weight"},
};

}  // namespace

constinit const NodeKind kMamba = {.name = "mamba", .declare = DeclareMamba, .names = kMambaNames};

}  // namespace tandem::model
