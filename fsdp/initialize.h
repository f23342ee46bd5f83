#pragma once

#include <cstdint>

#include "fsdp/layout.h"

namespace tandem::fsdp {

struct ItemInit;

// Writes elements `part` (flat coordinates, within the item) of the item's initial values to `values`,
// which begins at part.begin. Each element depends on seed, item name and its index within the item alone.
// T: float or double.
template <typename T>
void InitializeItem(uint64_t seed, const Item& item, const ItemInit& init, Range part, T* values);

}  // namespace tandem::fsdp
