// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <functional>
#include <memory>
#include <string>
#include <utility>

#include "fsdp/optimizer.h"
#include "fsdp/shard_kernels.h"
#include "tests/parity/expect_same.h"
#include "tests/parity/fakes.h"
#include "tests/parity/job.h"
#include "tests/parity/run.h"
#include "trainer/backend.h"
#include "trainer/failure.h"

namespace tandem::parity {
namespace {

// What an optimizer step does to its arrays beside its work.
using Mischief = std::function<void(const fsdp::ShardGeometry&, const fsdp::OptimizerArrays&)>;

class MischievousKernels final : public fsdp::UnitKernels {
 public:
  MischievousKernels(const fsdp::ShardGeometry& geometry, Mischief mischief)
      : geometry_(geometry),
        mischief_(std::move(mischief)),
        inner_(fsdp::CpuShardKernels().MakeUnit(geometry)) {}

  void Fold(const void* staging, void* gradients, bool add, fsdp::UnitNormTerms* norm_terms) const override {
    inner_->Fold(staging, gradients, add, norm_terms);
  }
  void OptimizerStep(const fsdp::OptimizerArrays& arrays, const fsdp::AdamWConfig& config) const override {
    inner_->OptimizerStep(arrays, config);
    if (geometry_.num_parameters > 2) {  // of a layer
      mischief_(geometry_, arrays);
    }
  }

 private:
  const fsdp::ShardGeometry geometry_;
  const Mischief mischief_;
  const std::unique_ptr<fsdp::UnitKernels> inner_;
};

using MischievousBackend = WithUnits<MischievousKernels, Mischief>;

JobOptions Tiny(const std::string& strategy) {
  return {.strategy = strategy,
          .ranks = 4,
          .replicas = ReplicasOf(strategy),
          .microbatches_per_rank = 2,
          .steps = 3,
          .layers = 1,
          .hidden = 16,
          .inner = 24,
          .heads = 2,
          .kv_heads = 1,
          .sequence_length = 8,
          .validate_every_steps = 2,
          .validation_batches = 4};
}

TEST(CanariesTest, PaddingIsUntouchedAndCanariesChangeNoNumber) {
  for (const char* strategy : {"replicate", "zero1", "zero2", "zero3", "hsdp", "hfsdp"}) {
    for (const char* precision : {"compute: COMPUTE_TYPE_FP32 transport: COMPUTE_TYPE_FP32",
                                  "compute: COMPUTE_TYPE_BF16 transport: COMPUTE_TYPE_BF16"}) {
      SCOPED_TRACE(testing::Message() << strategy << ", " << precision);
      JobOptions options = Tiny(strategy);
      options.precision = precision;
      JobRun plain = RunJob(MakeJob(options), {.arrays = false});
      options.canaries = true;
      JobRun guarded = RunJob(MakeJob(options), {.arrays = false});
      ExpectSameBits(plain, guarded);
    }
  }
}

// The message of the error that the job on one rank ends with.
std::string ErrorWith(const Mischief& mischief) {
  JobOptions options = Tiny("zero3");
  options.ranks = 1;
  options.canaries = true;
  try {
    RunJob(MakeJob(options), {.make_backend = [&](int) -> std::unique_ptr<trainer::Backend> {
             return std::make_unique<MischievousBackend>(mischief);
           }});
  } catch (const trainer::InstructionError& error) {
    // The run that applies the first step and computes the second is issued before the look behind the first.
    EXPECT_TRUE(error.step == 1 || error.step == 2) << error.step;
    return error.what();
  }
  return "went on";
}

TEST(CanariesTest, AWriteBehindAParameterReportsItsName) {
  const std::string error =
      ErrorWith([](const fsdp::ShardGeometry& geometry, const fsdp::OptimizerArrays& arrays) {
        for (size_t i = 0; i + 1 < geometry.pieces.size(); ++i) {
          if (geometry.pieces[i].range.end < geometry.pieces[i + 1].range.begin) {
            static_cast<float*>(arrays.exp_avg)[geometry.pieces[i].range.end - geometry.begin] = 0;
            return;
          }
        }
      });
  EXPECT_TRUE(
      error.starts_with("something wrote to the padding of layers.0 optimizer state behind model.layers.0."))
      << error;
}

TEST(CanariesTest, AWriteBehindABufferReportsItsName) {
  const std::string error =
      ErrorWith([](const fsdp::ShardGeometry& geometry, const fsdp::OptimizerArrays& arrays) {
        arrays.update_norms[geometry.num_parameters] = {};
      });
  EXPECT_TRUE(
      error.starts_with("something wrote to the memory behind layers.0 update norms, 0 bytes from its start"))
      << error;
}

TEST(CanariesTest, WithoutThemTheJobGoesOn) {
  JobOptions options = Tiny("zero3");
  EXPECT_NO_THROW(RunJob(MakeJob(options), {.make_backend = [](int) -> std::unique_ptr<trainer::Backend> {
                           return std::make_unique<MischievousBackend>(
                               [](const fsdp::ShardGeometry& geometry, const fsdp::OptimizerArrays& arrays) {
                                 arrays.update_norms[geometry.num_parameters] = {};
                               });
                         }}));
}

}  // namespace
}  // namespace tandem::parity
