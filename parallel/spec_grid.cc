#include "parallel/spec_grid.h"

namespace tandem::parallel {

GridSizes GridOf(const v1::Parallelism& resolved) {
  return {.world = resolved.ranks(),
          .tensor = resolved.tensor(),
          .context = resolved.context(),
          .pipeline = resolved.pipeline(),
          .expert = resolved.expert(),
          .expert_tensor = resolved.expert_tensor(),
          .replicas = resolved.replicas(),
          .order = resolved.order(),
          .separate_all_gather = true};
}

}  // namespace tandem::parallel
