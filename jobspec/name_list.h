// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace tandem::jobspec {

// For fields of a spec that list names: "embedding, layers.0".

// Splits a list at its commas, and removes blanks around the names. A name may be empty. A list that is only
// the word `nothing` has no names.
std::vector<std::string> NamesIn(std::string_view list, std::string_view nothing);

// Whether the name matches the pattern, in which * stands for any text. Takes at most time proportional to
// the product of their lengths.
bool MatchesName(std::string_view pattern, std::string_view name);

// The parameters without weight decay if the spec does not list any: norms and biases. Some of these patterns
// match nothing in some models.
inline constexpr char kDefaultNoWeightDecay[] = "*norm.weight,*.bias";
// The same default for models whose layers are listed by a pattern (model/layer_pattern.h).
inline constexpr char kMixersNoWeightDecay[] = "*norm.weight,*norm_f.weight,*.bias,*.A_log,*.D,*.dt_bias";

}  // namespace tandem::jobspec
