#include <ATen/core/Tensor.h>

#include "fsdp/sharded_unit.h"

namespace tandem::fsdp {

std::vector<at::Tensor> ParameterViews(const Layout& layout, const at::Tensor& slot) {
  std::vector<at::Tensor> views;
  views.reserve(layout.parameters.size());
  for (const Parameter& parameter : layout.parameters) {
    views.push_back(slot.narrow(0, parameter.range.begin, parameter.range.size()).view(parameter.shape));
  }
  return views;
}

}  // namespace tandem::fsdp
