// SPDX-License-Identifier: Apache-2.0
#include "ops/array_checks.h"
#include "ops/cpu/instruction_sets.h"
#include "ops/device_kernels.h"

namespace tandem::ops::cpu {
namespace {

// Runs the kernel of the processor's widest instruction set.
template <typename Args>
void Run(const Args& args) {
  static const auto run = KernelOf<Args>(BestInstructionSet());
  if constexpr (requires { args.rows_there; }) {
    if (args.rows_there != nullptr) {
      Check(*args.rows_there >= 0 && *args.rows_there <= args.rows, "the experts have ", *args.rows_there,
            " rows, but there are at most ", args.rows);
      Args there = args;
      there.rows = *args.rows_there;
      run(there);
      return;
    }
  }
  run(args);
}

}  // namespace

TANDEM_CPU_KERNEL(AccumulateArgs)
TANDEM_CPU_KERNEL(AddArgs)
TANDEM_CPU_KERNEL(AttentionArgs)
TANDEM_CPU_KERNEL(AttentionBackwardArgs)
TANDEM_CPU_KERNEL(CausalConvArgs)
TANDEM_CPU_KERNEL(CausalConvBackwardArgs)
TANDEM_CPU_KERNEL(GatedDeltaArgs)
TANDEM_CPU_KERNEL(GatedDeltaBackwardArgs)
TANDEM_CPU_KERNEL(GatedNormArgs)
TANDEM_CPU_KERNEL(GatedNormBackwardArgs)
TANDEM_CPU_KERNEL(LogSumExpArgs)
TANDEM_CPU_KERNEL(NarrowArgs)
TANDEM_CPU_KERNEL(NormGateArgs)
TANDEM_CPU_KERNEL(NormGateBackwardArgs)
TANDEM_CPU_KERNEL(OutputGateArgs)
TANDEM_CPU_KERNEL(OutputGateBackwardArgs)
TANDEM_CPU_KERNEL(RmsNormArgs)
TANDEM_CPU_KERNEL(RmsNormBackwardArgs)
TANDEM_CPU_KERNEL(RopeArgs)
TANDEM_CPU_KERNEL(SoftmaxArgs)
TANDEM_CPU_KERNEL(SquaredReluArgs)
TANDEM_CPU_KERNEL(SquaredReluBackwardArgs)
TANDEM_CPU_KERNEL(StateScanArgs)
TANDEM_CPU_KERNEL(StateScanBackwardArgs)
TANDEM_CPU_KERNEL(SwiGluArgs)
TANDEM_CPU_KERNEL(SwiGluBackwardArgs)
TANDEM_CPU_KERNEL(TokenGateArgs)
TANDEM_CPU_KERNEL(TokenGateBackwardArgs)
TANDEM_CPU_KERNEL(WidenArgs)

}  // namespace tandem::ops::cpu
