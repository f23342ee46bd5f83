// SPDX-License-Identifier: Apache-2.0
#include "model/depths.h"

#include "absl/strings/str_cat.h"
#include "model/node_kinds.h"

namespace tandem::model {

std::string UnitOfDepth(int64_t depth) { return absl::StrCat("mtp.", depth - 1); }

InputSpec HiddenOfDepth(const char* name, int64_t depth, const DecoderShapes& shapes) {
  const std::string node = depth == 0 ? absl::StrCat(UnitOfDepth(1), ".", kMainNorm.name)
                                      : absl::StrCat(UnitOfDepth(depth), ".", kDepthNorm.name);
  InputSpec input = HiddenState(name, shapes);
  input.from = absl::StrCat(node, ".hidden");
  return input;
}

}  // namespace tandem::model
