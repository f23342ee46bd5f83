// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "ops/capacity.h"
#include "ops/cuda/kernels.h"
#include "ops/grouped_linear.h"
#include "ops/permute.h"
#include "ops/router.h"
#include "ops/router_losses.h"
#include "ops/sends.h"
#include "ops/workspace.h"

namespace tandem::ops::cuda {

// The kernels behind the operations of sparse layers; as kernels.h says of its own. Whole numbers alone are
// added up by atomics, where their order means nothing. What `begins` and rows_there say is read on the GPU,
// so grids are as large as the most rows that there can be, and what is beyond ends at once. An index outside
// of its range counts as none.

int Launch(const CountTokensArgs& args, Stream stream);
int Launch(const MeanCountsArgs& args, Stream stream);
int Launch(const PermuteArgs& args, Stream stream);
int Launch(const PlanRowsArgs& args, Stream stream);
int Launch(const PlanSendsArgs& args, Stream stream);
int Launch(const PlanWindowArgs& args, Stream stream);
template <typename E>
int Launch(const UnpermuteArgs<E>& args, Stream stream);

// In tiles of fixed size and order: the bits of a row depend on its own numbers and the expert's alone, those
// of a weight's gradient on the rows of its expert. Sums are of Arithmetic<E>.
template <typename E>
int Launch(const GroupedLinearArgs<E>& args, Stream stream);
template <typename E>
int Launch(const GroupedLinearBackwardInputArgs<E>& args, Stream stream);
template <typename E>
int Launch(const GroupedLinearBackwardWeightArgs<E>& args, Stream stream);

// T: float, double.
template <typename T>
int Launch(const CollectSlotsArgs<T>& args, Stream stream);
template <typename T>
int Launch(const CountLargestArgs<T>& args, Stream stream);
template <typename T>
int Launch(const DropOverflowArgs<T>& args, Stream stream);
template <typename T>
int Launch(const RouteArgs<T>& args, Stream stream);
template <typename T>
int Launch(const RouteBackwardArgs<T>& args, Stream stream);
template <typename T>
int Launch(const RouterLossesArgs<T>& args, Stream stream);
template <typename T>
int Launch(const RouterLossesBackwardArgs<T>& args, Stream stream);
template <typename T>
int Launch(const SendSlotsArgs<T>& args, Stream stream);
template <typename T>
int Launch(const UpdateRouterBiasArgs<T>& args, Stream stream);

// Behind the definition of Launch for those arguments.
#define TANDEM_STATISTICS_KERNEL(Args)                    \
  template int Launch(const Args<float>&, Stream stream); \
  template int Launch(const Args<double>&, Stream stream);

}  // namespace tandem::ops::cuda
