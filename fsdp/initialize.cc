#include "fsdp/initialize.h"

#include <xxhash.h>

#include <algorithm>

#include "fsdp/philox.h"
#include "fsdp/sharded_unit.h"

namespace tandem::fsdp {

template <typename T>
void InitializeItem(uint64_t seed, const Item& item, const ItemInit& init, Range part, T* values) {
  if (init.ones) {
    std::fill_n(values, part.size(), T{1});
    return;
  }
  const uint64_t stream = XXH3_64bits(item.name.data(), item.name.size());
  for (int64_t i = part.begin; i < part.end; ++i) {
    const double normal = PhiloxNormal(seed, stream, static_cast<uint64_t>(i - item.range.begin));
    values[i - part.begin] = static_cast<T>(init.deviation * normal);
  }
}

template void InitializeItem(uint64_t, const Item&, const ItemInit&, Range, float*);
template void InitializeItem(uint64_t, const Item&, const ItemInit&, Range, double*);

}  // namespace tandem::fsdp
