// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cuda_runtime.h>

#include <algorithm>
#include <cstdint>
#include <type_traits>

#include "cutlass/cutlass.h"
#include "cutlass/epilogue/collective/collective_builder.hpp"
#include "cutlass/gemm/collective/collective_builder.hpp"
#include "cutlass/gemm/device/gemm_universal_adapter.h"
#include "cutlass/gemm/group_array_problem_shape.hpp"
#include "cutlass/gemm/kernel/gemm_universal.hpp"
#include "ops/cuda/kernels.h"
#include "ops/sparse_work.h"
#include "ops/workspace.h"

// A matrix product for each expert, D = A B or D += A B, by one launch of CUTLASS's kernel. It reads the
// sizes and addresses of each expert's matrices from lists in the work memory, which the kernel ListExperts
// writes.
//
// Each multiprocessor has one block, and the tiles are divided among the blocks before they start. While
// another kernel occupies a multiprocessor, its block has to wait until another block ends. So collectives
// that overlap with such products should use copy engines.
namespace tandem::ops::cuda {

using HopperShape = cute::Shape<int, int, int>;  // rows and columns of D, and the depth

// The places of A, B or D of all experts, in elements. The matrix of expert e begins at begin + by_row * (its
// first row) + by_expert * e. If the experts have rows of one matrix, by_expert is 0; if each has a weight,
// by_row is 0.
struct ExpertMatrices {
  const void* begin = nullptr;
  int64_t by_row = 0;
  int64_t by_expert = 0;
  int64_t stride = 0;  // between lines of an expert's matrix
};

struct ExpertProducts {
  const int64_t* begins = nullptr;
  bool on_host = false;  // begins
  int experts = 0;
  // The sizes of HopperShape; -1: the number of the expert's rows.
  int rows = 0;
  int columns = 0;
  int depth = 0;
  ExpertMatrices a;
  ExpertMatrices b;
  ExpertMatrices d;
};

// The lists that CUTLASS reads, with an entry for each expert. A, B, D: types of elements.
template <typename A, typename B, typename D>
struct ExpertLists {
  HopperShape* shapes = nullptr;
  const A** a = nullptr;
  const B** b = nullptr;
  D** d = nullptr;
  int64_t* a_strides = nullptr;
  int64_t* b_strides = nullptr;
  int64_t* d_strides = nullptr;
};

// Divides the work memory into parts. Take returns null if too little is left.
class WorkParts {
 public:
  explicit WorkParts(Workspace work) : next_(static_cast<char*>(work.begin)), left_(work.bytes) {}

  template <typename T>
  T* Take(int64_t count) {
    constexpr int64_t kAligned = 128;
    const int64_t bytes = (count * static_cast<int64_t>(sizeof(T)) + kAligned - 1) / kAligned * kAligned;
    left_ -= bytes;
    if (left_ < 0) {
      return nullptr;
    }
    char* const part = next_;
    next_ += bytes;
    return reinterpret_cast<T*>(part);
  }

 private:
  char* next_;
  int64_t left_;
};

// Begins that are on the host, passed to a kernel as an argument: 8 KiB of at most 32,764 bytes.
struct KnownBegins {
  __device__ int64_t operator[](int64_t expert) const { return of[expert]; }

  int64_t of[kMostGpuGroups + 1];
};

// Writes the lists: block (x, 0) writes the entries of expert x. If `clears`, all blocks (x, y) set D of an
// expert x without rows to zero, because CUTLASS skips products of depth 0. Begins: const int64_t* or
// KnownBegins.
template <typename Begins, typename Lists, typename E, typename D>
__global__ void __launch_bounds__(256)
    ListExperts(const __grid_constant__ Begins begins, ExpertProducts products, bool clears, Lists lists) {
  const int64_t expert = blockIdx.x;
  const int64_t begin = begins[expert];
  const int64_t rows = begins[expert + 1] - begin;
  const auto of = [&](int size) { return rows == 0 ? 0 : size < 0 ? static_cast<int>(rows) : size; };
  const auto place = [&](const ExpertMatrices& matrices) {
    return begin * matrices.by_row + expert * matrices.by_expert;
  };
  D* const d = static_cast<D*>(const_cast<void*>(products.d.begin)) + place(products.d);
  if (blockIdx.y == 0 && threadIdx.x == 0) {
    lists.shapes[expert] = {of(products.rows), of(products.columns), of(products.depth)};
    lists.a[expert] = static_cast<const E*>(products.a.begin) + place(products.a);
    lists.b[expert] = static_cast<const E*>(products.b.begin) + place(products.b);
    lists.d[expert] = d;
    lists.a_strides[expert] = products.a.stride;
    lists.b_strides[expert] = products.b.stride;
    lists.d_strides[expert] = products.d.stride;
  }
  if (rows > 0 || !clears) {
    return;
  }
  const int64_t packs = products.d.by_expert * static_cast<int64_t>(sizeof(D)) / 16;
  const int64_t threads = static_cast<int64_t>(gridDim.y) * blockDim.x;
  for (int64_t i = static_cast<int64_t>(blockIdx.y) * blockDim.x + threadIdx.x; i < packs; i += threads) {
    reinterpret_cast<uint4*>(d)[i] = {};
  }
}

// LayoutA, LayoutB: cutlass::layout. D: cutlass::bfloat16_t or float. kWeights: D is a weight's gradient, to
// which the product may be added.
template <typename LayoutA, typename LayoutB, typename D, bool kWeights>
class HopperProduct {
 public:
  static int Launch(const ExpertProducts& products, bool add, Workspace work, Stream stream) {
    WorkParts parts(work);
    Lists lists;
    lists.shapes = parts.Take<HopperShape>(products.experts);
    lists.a = parts.Take<const E*>(products.experts);
    lists.b = parts.Take<const E*>(products.experts);
    lists.d = parts.Take<D*>(products.experts);
    lists.a_strides = parts.Take<int64_t>(products.experts);
    lists.b_strides = parts.Take<int64_t>(products.experts);
    lists.d_strides = parts.Take<int64_t>(products.experts);
    int device = 0;
    int processors = 0;
    if (const int error = cudaGetDevice(&device); error != cudaSuccess) {
      return error;
    }
    if (const int error = cudaDeviceGetAttribute(&processors, cudaDevAttrMultiProcessorCount, device);
        error != cudaSuccess) {
      return error;
    }
    typename Device::Arguments args{};
    args.mode = cutlass::gemm::GemmUniversalMode::kGrouped;
    args.problem_shape = {products.experts, lists.shapes, nullptr};
    args.mainloop = {lists.a, reinterpret_cast<typename Kernel::InternalStrideA*>(lists.a_strides), lists.b,
                     reinterpret_cast<typename Kernel::InternalStrideB*>(lists.b_strides)};
    args.epilogue.thread.alpha = 1;
    args.epilogue.ptr_D = lists.d;
    args.epilogue.dD = reinterpret_cast<typename Kernel::InternalStrideD*>(lists.d_strides);
    if constexpr (kWeights) {
      args.epilogue.thread.beta = add ? 1 : 0;
      args.epilogue.ptr_C = const_cast<const D**>(lists.d);
      args.epilogue.dC = args.epilogue.dD;
    }
    args.hw_info.device_id = device;
    args.hw_info.sm_count = processors;
    char* const rest = parts.template Take<char>(static_cast<int64_t>(Device::get_workspace_size(args)));
    if (lists.d_strides == nullptr || rest == nullptr) {
      return cudaErrorInvalidValue;
    }

    const dim3 grid(static_cast<unsigned>(products.experts), kWeights && !add ? kClearing : 1);
    if (products.on_host) {
      KnownBegins known;
      std::copy_n(products.begins, products.experts + 1, known.of);
      ListExperts<KnownBegins, Lists, E, D>
          <<<grid, 256, 0, stream>>>(known, products, kWeights && !add, lists);
    } else {
      ListExperts<const int64_t*, Lists, E, D>
          <<<grid, 256, 0, stream>>>(products.begins, products, kWeights && !add, lists);
    }
    if (const int error = cudaGetLastError(); error != cudaSuccess) {
      return error;
    }
    Device product;
    if (product.can_implement(args) != cutlass::Status::kSuccess) {
      return cudaErrorNotSupported;
    }
    cutlass::Status status = product.initialize(args, rest, stream);
    if (status == cutlass::Status::kSuccess) {
      status = product.run(stream);
    }
    // CUTLASS has cleared the runtime's error and returns only that there was one.
    return status == cutlass::Status::kSuccess ? cudaSuccess : cudaErrorLaunchFailure;
  }

 private:
  using E = cutlass::bfloat16_t;
  using Lists = ExpertLists<E, E, D>;
  // Measured for 64 experts of about 1,000 rows (bench/RESULTS.md). Sums of float take two small tiles, one
  // of which is written while the other is computed. Blocks of a cluster share what they read; experts' rows
  // seldom fill an even number of tiles.
  static constexpr bool kSmall = std::is_same_v<D, float>;
  using Tile = cute::Shape<cute::_128, std::conditional_t<kSmall, cute::_128, cute::_256>, cute::_64>;
  using Cluster = cute::Shape<std::conditional_t<kWeights, cute::_2, cute::_1>, cute::_1, cute::_1>;
  static constexpr unsigned kClearing = 16;
  static constexpr int kAligned = 8;  // elements of bfloat16
  static constexpr int kAlignedD = static_cast<int>(16 / sizeof(D));

  using Epilogue = typename cutlass::epilogue::collective::CollectiveBuilder<
      cutlass::arch::Sm90, cutlass::arch::OpClassTensorOp, Tile, Cluster,
      cutlass::epilogue::collective::EpilogueTileAuto, float, float, std::conditional_t<kWeights, D, void>,
      cutlass::layout::RowMajor*, kAlignedD, D, cutlass::layout::RowMajor*, kAlignedD,
      std::conditional_t<kSmall, cutlass::epilogue::PtrArrayTmaWarpSpecializedPingpong,
                         cutlass::epilogue::PtrArrayTmaWarpSpecializedCooperative>>::CollectiveOp;
  using Mainloop = typename cutlass::gemm::collective::CollectiveBuilder<
      cutlass::arch::Sm90, cutlass::arch::OpClassTensorOp, E, LayoutA*, kAligned, E, LayoutB*, kAligned,
      float, Tile, Cluster,
      cutlass::gemm::collective::StageCountAutoCarveout<static_cast<int>(
          sizeof(typename Epilogue::SharedStorage))>,
      std::conditional_t<kSmall, cutlass::gemm::KernelPtrArrayTmaWarpSpecializedPingpong,
                         cutlass::gemm::KernelPtrArrayTmaWarpSpecializedCooperative>>::CollectiveOp;
  using Kernel =
      cutlass::gemm::kernel::GemmUniversal<cutlass::gemm::GroupProblemShape<HopperShape>, Mainloop, Epilogue>;
  using Device = cutlass::gemm::device::GemmUniversalAdapter<Kernel>;
  // CUTLASS's strides consist of the stride between lines only.
  static_assert(sizeof(typename Kernel::InternalStrideA) == sizeof(int64_t) &&
                sizeof(typename Kernel::InternalStrideB) == sizeof(int64_t) &&
                sizeof(typename Kernel::InternalStrideD) == sizeof(int64_t));
};

}  // namespace tandem::ops::cuda
