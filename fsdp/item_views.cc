#include <ATen/core/Tensor.h>

#include "fsdp/sharded_unit.h"

namespace tandem::fsdp {

std::vector<at::Tensor> ItemViews(const Layout& layout, const at::Tensor& slot) {
  std::vector<at::Tensor> views;
  views.reserve(layout.items.size());
  for (const Item& item : layout.items) {
    views.push_back(slot.narrow(0, item.range.begin, item.range.size()).view(item.shape));
  }
  return views;
}

}  // namespace tandem::fsdp
