// SPDX-License-Identifier: Apache-2.0
#include "ops/cuda/product_plan.h"

#include <cuda_runtime_api.h>

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "ops/array_checks.h"
#include "ops/linear_work.h"
#include "platform/log.h"

namespace tandem::ops::cuda {
namespace {

cudaDataType_t TypeOf(const Array& matrix) {
  switch (matrix.type) {
    case ElementKind::kFloat:
      return CUDA_R_32F;
    case ElementKind::kDouble:
      return CUDA_R_64F;
    case ElementKind::kBf16:
      return CUDA_R_16BF;
    default:
      throw std::invalid_argument(
          absl::StrCat("a matrix product cannot have elements of ", ToText(matrix.type)));
  }
}

cublasComputeType_t ComputeTypeOf(cudaDataType_t type) {
  return type == CUDA_R_64F ? CUBLAS_COMPUTE_64F : CUBLAS_COMPUTE_32F;
}

cudaDataType_t ScaleTypeOf(cudaDataType_t type) { return type == CUDA_R_64F ? CUDA_R_64F : CUDA_R_32F; }

cublasLtMatrixLayout_t LayoutOf(const Operand& m) {
  cublasLtMatrixLayout_t layout = nullptr;
  CheckProduct(cublasLtMatrixLayoutCreate(&layout, m.type, m.transposed ? m.rows : m.columns,
                                          m.transposed ? m.columns : m.rows, m.stride),
               "layout");
  return layout;
}

std::string Factors(const ProductOperands& operands) {
  return absl::StrCat("[", operands.left.rows, ", ", operands.left.columns, "] times [", operands.right.rows,
                      ", ", operands.right.columns, "]");
}

// Calls visit(cuBLASLt's name of the setting, the setting in its type, the setting) for each setting except
// the algorithm's number.
template <typename Visit>
void WithSettings(ProductTable::Algorithm& a, const Visit& visit) {
  visit(CUBLASLT_ALGO_CONFIG_TILE_ID, uint32_t{a.tile}, a.tile);
  visit(CUBLASLT_ALGO_CONFIG_STAGES_ID, uint32_t{a.stages}, a.stages);
  visit(CUBLASLT_ALGO_CONFIG_SPLITK_NUM, static_cast<int32_t>(a.splits), a.splits);
  visit(CUBLASLT_ALGO_CONFIG_REDUCTION_SCHEME, uint32_t{a.reduction}, a.reduction);
  visit(CUBLASLT_ALGO_CONFIG_CTA_SWIZZLING, uint32_t{a.swizzle}, a.swizzle);
  visit(CUBLASLT_ALGO_CONFIG_CUSTOM_OPTION, uint32_t{a.custom}, a.custom);
  visit(CUBLASLT_ALGO_CONFIG_INNER_SHAPE_ID, static_cast<uint16_t>(a.inner), a.inner);
  visit(CUBLASLT_ALGO_CONFIG_CLUSTER_SHAPE_ID, static_cast<uint16_t>(a.cluster), a.cluster);
}

ProductTable::Algorithm SettingsOf(const cublasLtMatmulAlgo_t& algorithm) {
  ProductTable::Algorithm settings;
  const auto read = [&](cublasLtMatmulAlgoConfigAttributes_t which, auto value, uint32_t& setting) {
    size_t written = 0;
    CheckProduct(cublasLtMatmulAlgoConfigGetAttribute(&algorithm, which, &value, sizeof(value), &written),
                 "settings");
    setting = static_cast<uint32_t>(value);
  };
  read(CUBLASLT_ALGO_CONFIG_ID, int32_t{0}, settings.id);
  WithSettings(settings, read);
  return settings;
}

}  // namespace

void CheckProduct(cublasStatus_t status, const char* what) {
  Check(status == CUBLAS_STATUS_SUCCESS, "matrix product: ", what, ": ", cublasLtGetStatusString(status));
}

Operand::Operand(const Array& matrix)
    : memory(matrix.begin),
      type(TypeOf(matrix)),
      rows(matrix.rows),
      columns(matrix.columns),
      transposed(columns > 1 && matrix.column_stride != 1),
      stride(transposed ? matrix.column_stride
             : rows > 1 ? matrix.row_stride
                        : std::max<int64_t>(1, columns)) {
  Check(matrix.defined() && matrix.on == DeviceKind::kGpu &&
            (!transposed || rows <= 1 || matrix.row_stride == 1),
        "a product's matrices have two dims, of which one is adjacent, on a GPU; not ", matrix.shape(),
        " with strides ", matrix.row_stride, " and ", matrix.column_stride);
  stride = std::max(stride, transposed ? rows : columns);
}

uint32_t Operand::alignment() const {
  const uintptr_t address = reinterpret_cast<uintptr_t>(memory) | 16;
  return static_cast<uint32_t>(address & -address);
}

std::string Operand::text() const {
  if (alignment() != 16 || stride != (transposed ? rows : columns)) {
    return "";
  }
  const char* const name = type == CUDA_R_16BF ? "bf16" : type == CUDA_R_32F ? "fp32" : "fp64";
  return absl::StrCat(name, transposed ? " transposed " : " ", rows, "x", columns);
}

ProductOperands::ProductOperands(const ProductArgs& product)
    : left(product.a),
      right(product.b),
      output(product.output),
      adds(product.addend.defined()),
      addend(adds ? product.addend : product.output),
      factor(product.factor) {
  Check(left.columns == right.rows && output.rows == left.rows && output.columns == right.columns &&
            !output.transposed,
        "the product is [", left.rows, ", ", right.columns, "], its output ", product.output.shape());
  Check(addend.rows == output.rows && addend.columns == output.columns && addend.type == output.type &&
            !addend.transposed,
        "the addend of a product must have the shape and type of the output, not ", product.addend.shape());
  Check(left.type == right.type &&
            (output.type == left.type || (left.type == CUDA_R_16BF && output.type == CUDA_R_32F)),
        "a matrix product takes operands of one type, and an output of it, or of float32 beside "
        "bfloat16; not ",
        ToText(product.a.type), ", ", ToText(product.b.type), " and ", ToText(product.output.type));
}

std::string ProductOperands::text() const {
  for (const Operand* operand : {&left, &right, &output, &addend}) {
    if (operand->text().empty()) {
      return "";
    }
  }
  return absl::StrCat(left.text(), " * ", right.text(), adds ? " + addend = " : " = ", output.text());
}

std::string ProductMachine() {
  cudaDeviceProp properties{};
  int device = 0;
  cudaError_t error = cudaGetDevice(&device);
  error = error == cudaSuccess ? cudaGetDeviceProperties(&properties, device) : error;
  Check(error == cudaSuccess, "matrix product: no properties of the GPU: ", cudaGetErrorString(error));
  return absl::StrCat(properties.name, "|", cublasLtGetVersion());
}

ProductPlan::ProductPlan(cublasLtHandle_t handle, const ProductOperands& operands,
                         const ProductTable::Algorithm* algorithm)
    : type_(operands.left.type),
      output_type_(operands.output.type),
      a_(LayoutOf(operands.left)),
      b_(LayoutOf(operands.right)),
      addend_(LayoutOf(operands.addend)),
      output_(LayoutOf(operands.output)) {
  Describe(operands);
  if (algorithm != nullptr) {
    const cublasStatus_t status = Configure(handle, *algorithm, algorithm_);
    if (status == CUBLAS_STATUS_SUCCESS) {
      return;
    }
    platform::Log(platform::LogLevel::kWarning,
                  "cuBLASLt refuses the algorithm that the build's table has for a matrix product; the first "
                  "of its own rules computes it",
                  {{"product", Factors(operands)},
                   {"machine", ProductMachine()},
                   {"reason", cublasLtGetStatusString(status)}});
  }
  const std::vector<cublasLtMatmulAlgo_t> proposed = ProposedAlgorithms(handle, operands, 1);
  Check(!proposed.empty(), "matrix product: cuBLASLt has no algorithm for ", Factors(operands), " in ",
        kGpuLinearWorkBytes, " bytes of work memory");
  algorithm_ = proposed.front();
}

ProductPlan::~ProductPlan() {
  cublasLtMatmulDescDestroy(product_);
  for (const cublasLtMatrixLayout_t layout : {a_, b_, addend_, output_}) {
    cublasLtMatrixLayoutDestroy(layout);
  }
}

void ProductPlan::Describe(const ProductOperands& operands) {
  CheckProduct(cublasLtMatmulDescCreate(&product_, ComputeTypeOf(type_), ScaleTypeOf(type_)), "description");
  const auto transpose = [&](cublasLtMatmulDescAttributes_t attribute, bool transposed) {
    const cublasOperation_t operation = transposed ? CUBLAS_OP_T : CUBLAS_OP_N;
    CheckProduct(cublasLtMatmulDescSetAttribute(product_, attribute, &operation, sizeof(operation)),
                 "transposition");
  };
  transpose(CUBLASLT_MATMUL_DESC_TRANSA, operands.right.transposed);
  transpose(CUBLASLT_MATMUL_DESC_TRANSB, operands.left.transposed);
}

cublasStatus_t ProductPlan::Configure(cublasLtHandle_t handle, const ProductTable::Algorithm& algorithm,
                                      cublasLtMatmulAlgo_t& configured) const {
  cublasStatus_t status =
      cublasLtMatmulAlgoInit(handle, ComputeTypeOf(type_), ScaleTypeOf(type_), type_, type_, output_type_,
                             output_type_, static_cast<int>(algorithm.id), &configured);
  if (status == CUBLAS_STATUS_SUCCESS) {
    ProductTable::Algorithm settings = algorithm;
    WithSettings(settings, [&](cublasLtMatmulAlgoConfigAttributes_t which, auto value, uint32_t&) {
      const cublasStatus_t set =
          cublasLtMatmulAlgoConfigSetAttribute(&configured, which, &value, sizeof(value));
      if (set != CUBLAS_STATUS_SUCCESS) {
        status = set;
      }
    });
  }
  if (status != CUBLAS_STATUS_SUCCESS) {
    return status;
  }
  cublasLtMatmulHeuristicResult_t result{};
  status = cublasLtMatmulAlgoCheck(handle, product_, b_, a_, addend_, output_, &configured, &result);
  const bool fits = result.workspaceSize <= size_t{kGpuLinearWorkBytes};
  return status == CUBLAS_STATUS_SUCCESS && !fits ? CUBLAS_STATUS_NOT_SUPPORTED : status;
}

bool ProductPlan::Takes(cublasLtHandle_t handle, const ProductTable::Algorithm& algorithm) const {
  cublasLtMatmulAlgo_t configured{};
  return Configure(handle, algorithm, configured) == CUBLAS_STATUS_SUCCESS;
}

std::vector<cublasLtMatmulAlgo_t> ProductPlan::ProposedAlgorithms(cublasLtHandle_t handle,
                                                                  const ProductOperands& operands,
                                                                  int max_count) const {
  cublasLtMatmulPreference_t preference = nullptr;
  CheckProduct(cublasLtMatmulPreferenceCreate(&preference), "preference");
  const auto prefer = [&](cublasLtMatmulPreferenceAttributes_t attribute, auto value) {
    CheckProduct(cublasLtMatmulPreferenceSetAttribute(preference, attribute, &value, sizeof(value)),
                 "preference");
  };
  prefer(CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, uint64_t{kGpuLinearWorkBytes});
  // If split sums were added up in an output of bfloat16, they would be rounded once for each part.
  const auto in_place =
      output_type_ == CUDA_R_16BF ? CUBLASLT_REDUCTION_SCHEME_NONE : CUBLASLT_REDUCTION_SCHEME_INPLACE;
  prefer(CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK,
         static_cast<uint32_t>(in_place | CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE));
  prefer(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, operands.right.alignment());
  prefer(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, operands.left.alignment());
  prefer(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, operands.addend.alignment());
  prefer(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, operands.output.alignment());
  std::vector<cublasLtMatmulHeuristicResult_t> results(static_cast<size_t>(max_count));
  int found = 0;
  const cublasStatus_t status = cublasLtMatmulAlgoGetHeuristic(handle, product_, b_, a_, addend_, output_,
                                                               preference, max_count, results.data(), &found);
  cublasLtMatmulPreferenceDestroy(preference);
  std::vector<cublasLtMatmulAlgo_t> proposed;
  if (status != CUBLAS_STATUS_SUCCESS) {
    return proposed;
  }
  results.resize(static_cast<size_t>(found));
  for (const cublasLtMatmulHeuristicResult_t& result : results) {
    if (result.state == CUBLAS_STATUS_SUCCESS) {
      proposed.push_back(result.algo);
    }
  }
  return proposed;
}

std::vector<ProductTable::Algorithm> ProductPlan::Proposed(cublasLtHandle_t handle,
                                                           const ProductOperands& operands,
                                                           int max_count) const {
  std::vector<ProductTable::Algorithm> proposed;
  for (const cublasLtMatmulAlgo_t& algorithm : ProposedAlgorithms(handle, operands, max_count)) {
    proposed.push_back(SettingsOf(algorithm));
  }
  return proposed;
}

void ProductPlan::Run(cublasLtHandle_t handle, const ProductOperands& operands, Workspace work,
                      CUstream_st* stream) const {
  const double double_factors[] = {operands.factor, operands.adds ? 1.0 : 0.0};
  const float float_factors[] = {static_cast<float>(operands.factor), operands.adds ? 1.0F : 0.0F};
  const bool fp64 = type_ == CUDA_R_64F;
  const void* const alpha = fp64 ? static_cast<const void*>(double_factors) : float_factors;
  const void* const beta = fp64 ? static_cast<const void*>(double_factors + 1) : float_factors + 1;
  CheckProduct(
      cublasLtMatmul(handle, product_, alpha, operands.right.memory, b_, operands.left.memory, a_, beta,
                     operands.addend.memory, addend_, const_cast<void*>(operands.output.memory), output_,
                     &algorithm_, work.begin, static_cast<size_t>(work.bytes), stream),
      "the call");
}

}  // namespace tandem::ops::cuda
