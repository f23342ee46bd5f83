// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace tandem::jobspec {

// Fields of a spec that list names: "embedding, layers.0".

// The names between the commas, without the blanks around them; one may be empty. Nothing where the list is
// the word `nothing` alone, which says so.
std::vector<std::string> NamesIn(std::string_view list, std::string_view nothing);

// Whether the name is the pattern's, in which * is any text, and all else is itself. Takes at most time
// proportional to the product of their lengths.
bool MatchesName(std::string_view pattern, std::string_view name);

// Parameters that do not decay where the spec does not say: norms and biases, as in the field. One of these
// patterns may match nothing, since they are for models of every kind.
inline constexpr char kDefaultNoWeightDecay[] = "*norm.weight,*.bias";
// Of models whose layers a pattern lists.
inline constexpr char kMixersNoWeightDecay[] = "*norm.weight,*norm_f.weight,*.bias,*.A_log,*.D,*.dt_bias";

}  // namespace tandem::jobspec
