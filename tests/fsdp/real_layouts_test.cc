// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <cstdint>
#include <vector>

#include "fsdp/unit_mesh.h"

namespace tandem::fsdp {
namespace {

struct ModelShape {
  const char* model;
  int64_t hidden;
  int64_t intermediate;
  int64_t key_value;  // width of k, and of v
  int64_t vocabulary;
  bool biases;  // of q, k, v
};

constexpr ModelShape kShapes[] = {{"Llama-3-8B", 4096, 14336, 1024, 128256, false},
                                  {"Qwen2.5-7B", 3584, 18944, 512, 152064, true}};

// The units of a decoder: embedding, one layer, head.
std::vector<std::vector<ParameterSpec>> Units(const ModelShape& shape) {
  const int64_t h = shape.hidden;
  std::vector<ParameterSpec> layer = {{.name = "input_layernorm", .shape = {h}},
                                      {.name = "q_proj", .shape = {h, h}, .block = 0},
                                      {.name = "k_proj", .shape = {shape.key_value, h}, .block = 0},
                                      {.name = "v_proj", .shape = {shape.key_value, h}, .block = 0},
                                      {.name = "o_proj", .shape = {h, h}},
                                      {.name = "post_attention_layernorm", .shape = {h}},
                                      {.name = "gate_proj", .shape = {shape.intermediate, h}, .block = 1},
                                      {.name = "up_proj", .shape = {shape.intermediate, h}, .block = 1},
                                      {.name = "down_proj", .shape = {h, shape.intermediate}}};
  if (shape.biases) {
    layer.insert(layer.end(), {{.name = "q_proj.bias", .shape = {h}, .block = 2},
                               {.name = "k_proj.bias", .shape = {shape.key_value}, .block = 2},
                               {.name = "v_proj.bias", .shape = {shape.key_value}, .block = 2}});
  }
  return {{{.name = "embed_tokens", .shape = {shape.vocabulary, h}}},
          layer,
          {{.name = "norm", .shape = {h}}, {.name = "lm_head", .shape = {shape.vocabulary, h}}}};
}

// A layout whose pieces are multiples of every row's length pads Qwen's layers by 16.5 % at 512 shards.
TEST(RealLayoutsTest, PaddingIsAtMostAThousandth) {
  for (const ModelShape& shape : kShapes) {
    for (const int element_bytes : {2, 4}) {
      for (const std::vector<ParameterSpec>& unit : Units(shape)) {
        int64_t needed = 0;
        for (const ParameterSpec& parameter : unit) {
          needed += parameter.shape[0] * (parameter.shape.size() > 1 ? parameter.shape[1] : 1);
        }
        const Layout layout = MakeLayout(unit, element_bytes);
        for (const int shards : {8, 64, 512}) {
          const int64_t padding = PaddedElements(layout, {.inner = shards}) - needed;
          EXPECT_GE(padding, 0);
          EXPECT_LE(padding * 1000, needed) << shape.model << " " << unit[0].name << " on " << shards;
        }
      }
    }
  }
}

}  // namespace
}  // namespace tandem::fsdp
