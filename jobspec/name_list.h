// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace tandem::jobspec {

// Fields of a spec that list names: "embedding, layers.0".

// The names between the commas, without the blanks around them; a name may be empty. Returns no names if the
// list is only the word `nothing`.
std::vector<std::string> NamesIn(std::string_view list, std::string_view nothing);

// Whether the name matches the pattern, in which * stands for any text. Takes at most time proportional to
// the product of their lengths.
bool MatchesName(std::string_view pattern, std::string_view name);

// The parameters without weight decay if the spec does not list any: norms and biases, written as in the
// field. A pattern here may match nothing, because the list is for models of every kind.
inline constexpr char kDefaultNoWeightDecay[] = "*norm.weight,*.bias";
// The same for models whose layers are given by a pattern.
inline constexpr char kMixersNoWeightDecay[] = "*norm.weight,*norm_f.weight,*.bias,*.A_log,*.D,*.dt_bias";

}  // namespace tandem::jobspec
