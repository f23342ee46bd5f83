// SPDX-License-Identifier: Apache-2.0
#include "fsdp/buffer_bytes.h"

#include <algorithm>

#include "fsdp/norm_outcome.h"
#include "fsdp/parameter_norms.h"
#include "fsdp/run_inputs.h"

namespace tandem::fsdp {

static_assert(sizeof(NormOutcome) <= kExchangeOffset && kExchangeOffset % alignof(NormTerms) == 0);
static_assert(alignof(UnitNormTerms) == sizeof(double) && alignof(ParameterNorms) == sizeof(double));

UnitBufferBytes BufferBytesOf(const Layout& layout, const UnitMesh& mesh, int element_bytes) {
  const int64_t folded = MaxTiles(layout, ShardElements(layout, mesh));
  const int64_t held = MaxTiles(layout, HeldRange(layout, mesh).size());
  const auto parameter_norms = static_cast<int64_t>(sizeof(ParameterNorms));
  // The host's loop keeps mean and update of a block of elements; a GPU's blocks keep their sums.
  const int64_t host_scratch = 2 * kBlockChunks * kGranule * element_bytes;
  return {.norm_terms =
              (1 + std::min<int64_t>(folded, kMaxTermBlocks)) * static_cast<int64_t>(sizeof(UnitNormTerms)),
          .update_norms = static_cast<int64_t>(layout.parameters.size()) * parameter_norms,
          .optimizer_scratch = std::max(host_scratch, held * parameter_norms)};
}

UnitBufferBytes BufferBytesOf(const ClassLayouts& layouts, const UnitMesh& mesh, int element_bytes) {
  UnitBufferBytes all;
  for (const Layout& layout : layouts) {
    if (layout.elements > 0) {
      const UnitBufferBytes bytes = BufferBytesOf(layout, mesh, element_bytes);
      all.norm_terms += bytes.norm_terms;
      all.update_norms += bytes.update_norms;
      all.optimizer_scratch += bytes.optimizer_scratch;
    }
  }
  return all;
}

int64_t InputsBytes() { return sizeof(RunInputs); }

int64_t OutcomeBytes(int ranks) { return kExchangeOffset + ranks * static_cast<int64_t>(sizeof(NormTerms)); }

int64_t MaxTiles(const Layout& layout, int64_t elements) {
  return elements / (kGranule * kTileChunks) + 1 + static_cast<int64_t>(layout.parameters.size());
}

}  // namespace tandem::fsdp
