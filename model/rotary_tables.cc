// SPDX-License-Identifier: Apache-2.0
#include "model/rotary_tables.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>

#include "model/decoder_nodes.h"
#include "ops/latent_heads.h"
#include "ops/rope.h"

namespace tandem::model {

std::shared_ptr<const RotaryTables> MakeRotaryTables(const NodeContext& context) {
  const int64_t head_dim = context.shapes.head_dim;
  TORCH_CHECK(head_dim % 2 == 0, "rotary embedding needs an even head_dim, not ", head_dim);
  auto tables = std::make_shared<RotaryTables>();
  at::Tensor cosines =
      at::empty({context.shapes.length, head_dim / 2},
                MainType(context.types.unit.compute) == ComputeType::kFp64 ? at::kDouble : at::kFloat);
  at::Tensor sines = at::empty_like(cosines);
  if (context.shapes.latent.kv_rank > 0) {
    ops::LatentRotaryTables(context.shapes.latent_heads(), context.config.rope_theta, cosines, sines);
  } else {
    ops::RopeTables(context.config.rope_theta, cosines, sines);
  }
  tables->cosines = std::make_shared<const at::Tensor>(context.ops.Constant(cosines));
  tables->sines = std::make_shared<const at::Tensor>(context.ops.Constant(sines));
  return tables;
}

}  // namespace tandem::model
