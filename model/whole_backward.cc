// SPDX-License-Identifier: Apache-2.0
#include "model/whole_backward.h"

#include <algorithm>
#include <stdexcept>
#include <string>

namespace tandem::model {
namespace {

std::vector<const PassSpec*> Parts(const SplitBackward& halves) {
  std::vector<const PassSpec*> parts = {&halves.input};
  if (halves.weight.has_value()) {
    parts.push_back(&*halves.weight);
  }
  return parts;
}

// `more` behind `names`, each once, without intermediates.
void Merge(const SplitBackward& halves, const std::vector<std::string>& more,
           std::vector<std::string>& names) {
  for (const std::string& name : more) {
    const bool is_intermediate =
        std::any_of(halves.intermediates.begin(), halves.intermediates.end(),
                    [&name](const TensorSpec& intermediate) { return intermediate.name == name; });
    if (!is_intermediate && std::find(names.begin(), names.end(), name) == names.end()) {
      names.push_back(name);
    }
  }
}

}  // namespace

bool SplitsBackward(const NodeDeclaration& declaration) {
  return declaration.halves.has_value() && declaration.halves->weight.has_value();
}

PassSpec WholeBackward(const SplitBackward& halves) {
  PassSpec whole;
  for (const PassSpec* half : Parts(halves)) {
    Merge(halves, half->reads, whole.reads);
    Merge(halves, half->writes, whole.writes);
    Merge(halves, half->gradient_reads, whole.gradient_reads);
    Merge(halves, half->gradient_writes, whole.gradient_writes);
    whole.parameters = whole.parameters || half->parameters;
    whole.parameter_gradients = whole.parameter_gradients || half->parameter_gradients;
    whole.flops += half->flops;
    whole.score_flops += half->score_flops;
    whole.row_elements += half->row_elements;
    whole.link_bytes += half->link_bytes;
  }
  if (!whole.writes.empty()) {
    throw std::logic_error("a half of a backward writes " + whole.writes.front() +
                           ", which is not among its intermediates");
  }
  return whole;
}

WholeScratch LayOutWholeScratch(const NodeDeclaration& declaration, const NodeTypes& types) {
  WholeScratch scratch;
  for (const TensorSpec& intermediate : declaration.halves->intermediates) {
    scratch.intermediates.push_back(scratch.half);
    scratch.half += AlignedToPiece(BytesOf(intermediate, types));
  }
  for (const PassSpec* half : Parts(*declaration.halves)) {
    scratch.bytes = std::max(scratch.bytes, scratch.half + LayOutScratch(declaration, *half, types).bytes);
  }
  return scratch;
}

int64_t BackwardScratchBytes(const NodeDeclaration& declaration, const NodeTypes& types) {
  return declaration.halves.has_value() ? LayOutWholeScratch(declaration, types).bytes
                                        : LayOutScratch(declaration, declaration.backward, types).bytes;
}

}  // namespace tandem::model
