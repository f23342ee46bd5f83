// SPDX-License-Identifier: Apache-2.0
#include "ops/cuda/matrix_product.h"

#include <ATen/core/Tensor.h>
#include <c10/cuda/CUDAFunctions.h>
#include <cublasLt.h>

#include <algorithm>
#include <array>
#include <map>
#include <mutex>
#include <utility>

#include "ops/device_kind.h"
#include "ops/linear_work.h"
#include "ops/tensor_access.h"

namespace tandem::ops::cuda {
namespace {

void Check(cublasStatus_t status, const char* what) {
  TORCH_CHECK(status == CUBLAS_STATUS_SUCCESS, "matrix product: ", what, ": ",
              cublasLtGetStatusString(status));
}

cudaDataType_t TypeOf(const at::Tensor& matrix) {
  switch (ElementKindOf(matrix)) {
    case ElementKind::kFloat:
      return CUDA_R_32F;
    case ElementKind::kDouble:
      return CUDA_R_64F;
    case ElementKind::kBf16:
      return CUDA_R_16BF;
  }
  TORCH_CHECK(false, "no such type");
}

// A matrix as cuBLASLt sees it, which knows columns that are adjacent: the transpose of ours.
struct Operand {
  explicit Operand(const at::Tensor& matrix)
      : memory(matrix.const_data_ptr()),
        type(TypeOf(matrix)),
        rows(matrix.size(0)),
        columns(matrix.size(1)),
        transposed(columns > 1 && matrix.stride(1) != 1),
        stride(transposed ? matrix.stride(1)
               : rows > 1 ? matrix.stride(0)
                          : std::max<int64_t>(1, columns)) {
    TORCH_CHECK(matrix.dim() == 2 && matrix.is_cuda() && (!transposed || rows <= 1 || matrix.stride(0) == 1),
                "a product's matrices have two dims, of which one is adjacent, on a GPU; not ",
                matrix.sizes(), " with strides ", matrix.strides());
    stride = std::max(stride, transposed ? rows : columns);
  }
  uint32_t alignment() const {
    const uintptr_t address = reinterpret_cast<uintptr_t>(memory) | 16;
    return static_cast<uint32_t>(address & -address);
  }

  const void* memory;
  cudaDataType_t type;
  int64_t rows;
  int64_t columns;
  bool transposed;  // our rows are adjacent
  int64_t stride;
};

// What cuBLASLt calls one product.
class Plan {
 public:
  Plan(cublasLtHandle_t handle, const Operand& a, const Operand& b, const Operand& addend,
       const Operand& output, int64_t work_bytes)
      : type_(a.type), a_(Layout(a)), b_(Layout(b)), addend_(Layout(addend)), output_(Layout(output)) {
    const bool fp64 = a.type == CUDA_R_64F;
    Check(cublasLtMatmulDescCreate(&product_, fp64 ? CUBLAS_COMPUTE_64F : CUBLAS_COMPUTE_32F,
                                   fp64 ? CUDA_R_64F : CUDA_R_32F),
          "description");
    SetTransposed(CUBLASLT_MATMUL_DESC_TRANSA, b.transposed);
    SetTransposed(CUBLASLT_MATMUL_DESC_TRANSB, a.transposed);
    cublasLtMatmulPreference_t preference = nullptr;
    Check(cublasLtMatmulPreferenceCreate(&preference), "preference");
    const auto prefer = [&](cublasLtMatmulPreferenceAttributes_t attribute, auto value) {
      Check(cublasLtMatmulPreferenceSetAttribute(preference, attribute, &value, sizeof(value)), "preference");
    };
    prefer(CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, static_cast<uint64_t>(work_bytes));
    prefer(CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK,
           static_cast<uint32_t>(CUBLASLT_REDUCTION_SCHEME_INPLACE | CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE));
    prefer(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, b.alignment());
    prefer(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, a.alignment());
    prefer(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, addend.alignment());
    prefer(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, output.alignment());
    int found = 0;
    const cublasStatus_t status = cublasLtMatmulAlgoGetHeuristic(handle, product_, b_, a_, addend_, output_,
                                                                 preference, 1, &chosen_, &found);
    cublasLtMatmulPreferenceDestroy(preference);
    TORCH_CHECK(status == CUBLAS_STATUS_SUCCESS && found == 1,
                "matrix product: cuBLASLt has no algorithm for [", a.rows, ", ", a.columns, "] times [",
                b.rows, ", ", b.columns, "] in ", work_bytes,
                " bytes of work memory: ", cublasLtGetStatusString(status));
  }
  ~Plan() {
    cublasLtMatmulDescDestroy(product_);
    for (const cublasLtMatrixLayout_t layout : {a_, b_, addend_, output_})
      cublasLtMatrixLayoutDestroy(layout);
  }
  Plan(const Plan&) = delete;
  Plan& operator=(const Plan&) = delete;

  void Run(cublasLtHandle_t handle, const void* a, const void* b, const void* addend, void* output,
           Workspace work, CUstream_st* stream) const {
    const bool add = addend != nullptr;
    const double double_factors[] = {1, add ? 1.0 : 0.0};
    const float float_factors[] = {1, add ? 1.0F : 0.0F};
    const bool fp64 = type_ == CUDA_R_64F;
    const void* const alpha = fp64 ? static_cast<const void*>(double_factors) : float_factors;
    const void* const beta = fp64 ? static_cast<const void*>(double_factors + 1) : float_factors + 1;
    Check(cublasLtMatmul(handle, product_, alpha, b, b_, a, a_, beta, add ? addend : output, addend_, output,
                         output_, &chosen_.algo, work.begin, chosen_.workspaceSize, stream),
          "the call");
  }

 private:
  static cublasLtMatrixLayout_t Layout(const Operand& m) {
    cublasLtMatrixLayout_t layout = nullptr;
    Check(cublasLtMatrixLayoutCreate(&layout, m.type, m.transposed ? m.rows : m.columns,
                                     m.transposed ? m.columns : m.rows, m.stride),
          "layout");
    return layout;
  }
  void SetTransposed(cublasLtMatmulDescAttributes_t attribute, bool transposed) {
    const cublasOperation_t operation = transposed ? CUBLAS_OP_T : CUBLAS_OP_N;
    Check(cublasLtMatmulDescSetAttribute(product_, attribute, &operation, sizeof(operation)),
          "transposition");
  }

  const cudaDataType_t type_;
  cublasLtMatmulDesc_t product_ = nullptr;
  const cublasLtMatrixLayout_t a_;
  const cublasLtMatrixLayout_t b_;
  const cublasLtMatrixLayout_t addend_;
  const cublasLtMatrixLayout_t output_;
  cublasLtMatmulHeuristicResult_t chosen_{};
};

}  // namespace

class MatrixProduct::Plans {
 public:
  // The handle is of the current GPU; both live as long as this.
  std::pair<cublasLtHandle_t, const Plan*> Find(const Operand& a, const Operand& b, bool add,
                                                const Operand& addend, const Operand& output) {
    const int device = c10::cuda::current_device();
    const std::lock_guard lock(mutex_);
    cublasLtHandle_t& handle = handles_[device];
    if (handle == nullptr) Check(cublasLtCreate(&handle), "no handle");
    std::array<int64_t, 18> key = {device, add};
    size_t next = 2;
    for (const Operand* m : {&a, &b, &addend, &output}) {
      for (const int64_t part : {static_cast<int64_t>(m->type) * 64 + m->alignment() * 2 + m->transposed,
                                 m->rows, m->columns, m->stride}) {
        key[next++] = part;
      }
    }
    std::unique_ptr<Plan>& plan = plans_[key];
    if (plan == nullptr) plan = std::make_unique<Plan>(handle, a, b, addend, output, kGpuLinearWorkBytes);
    return {handle, plan.get()};
  }

 private:
  std::mutex mutex_;
  // Of the process: cuBLASLt may be gone when statics are destroyed.
  std::map<int, cublasLtHandle_t> handles_;
  std::map<std::array<int64_t, 18>, std::unique_ptr<Plan>> plans_;
};

MatrixProduct::MatrixProduct() : plans_(std::make_unique<Plans>()) {}
MatrixProduct::~MatrixProduct() = default;

void MatrixProduct::Multiply(const at::Tensor& a, const at::Tensor& b, const at::Tensor& addend,
                             at::Tensor& output, Workspace work, CUstream_st* stream) {
  const Operand left(a);
  const Operand right(b);
  const Operand result(output);
  const Operand added(addend.defined() ? addend : output);
  TORCH_CHECK(left.columns == right.rows && result.rows == left.rows && result.columns == right.columns &&
                  !result.transposed,
              "the product is [", left.rows, ", ", right.columns, "], its output ", output.sizes());
  TORCH_CHECK(added.rows == result.rows && added.columns == result.columns && added.type == result.type &&
                  !added.transposed,
              "what is added to a product is as its output, not ", addend.sizes());
  TORCH_CHECK(left.type == right.type &&
                  (result.type == left.type || (left.type == CUDA_R_16BF && result.type == CUDA_R_32F)),
              "a matrix product takes operands of one type, and an output of it, or of float32 beside "
              "bfloat16; not ",
              a.scalar_type(), ", ", b.scalar_type(), " and ", output.scalar_type());
  CheckWork("a matrix product", work, kGpuLinearWorkBytes);
  if (output.numel() == 0) return;
  if (left.columns == 0) {
    if (!addend.defined()) {
      output.zero_();
    } else if (added.memory != result.memory) {
      output.copy_(addend);
    }
    return;
  }
  const auto [handle, plan] = plans_->Find(left, right, addend.defined(), added, result);
  plan->Run(handle, left.memory, right.memory, addend.defined() ? added.memory : nullptr,
            output.mutable_data_ptr(), work, stream);
}

}  // namespace tandem::ops::cuda
