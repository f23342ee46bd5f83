// SPDX-License-Identifier: Apache-2.0
#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>
#include <gtest/gtest.h>

#include <functional>
#include <memory>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "device/cuda/device.h"
#include "device/static_arena.h"
#include "tests/cuda/spinning_backend.h"
#include "tests/device/tensors.h"
#include "tests/parity/expect_same.h"
#include "tests/parity/job.h"
#include "tests/parity/run.h"

namespace tandem::cuda {
namespace {

class CudaCaptureTest : public testing::Test {
 protected:
  void Run(const std::function<void()>& work) {
    stream_->Enqueue(work);
    stream_->Synchronize();
  }

  double Number() {
    Run([this] { device_->CopyToHost(host_, number_.const_data_ptr(), 8); });
    return *host_;
  }

  const std::unique_ptr<device::Device> device_ = device::MakeCudaDevice(0);
  const std::unique_ptr<device::Stream> stream_ =
      device_->MakeStream("compute", device::StreamPriority::kNormal, device::StreamError());
  const device::StaticArena arena_{*device_, device_->Reserve(4096)};
  at::Tensor number_ = device::TensorAt(*device_, arena_, 0, {1}, at::kDouble);
  const device::StaticArena pinned_{*device_, device_->ReserveHost(8)};
  double* const host_ = pinned_.At(0, 8).as<double>();
};

TEST_F(CudaCaptureTest, ACaptureDoesNothingAndEachLaunchDoesItAgain) {
  std::unique_ptr<device::Graph> graph;
  Run([&] { number_.fill_(1); });
  Run([&] { number_.mul_(2); });
  Run([&] { graph = device_->Capture([&] { number_.mul_(2); }); });
  EXPECT_EQ(Number(), 2);
  Run([&] {
    graph->Launch();
    graph->Launch();
  });
  EXPECT_EQ(Number(), 8);
}

TEST_F(CudaCaptureTest, WorkThatTakesMemoryOfLibTorchIsRefused) {
  Run([&] { at::empty({1}, number_.options()); });  // so that the allocator has a piece to give out
  EXPECT_THROW(
      Run([&] { device_->Capture([&] { number_.copy_(at::empty({1}, number_.options()).fill_(1)); }); }),
      std::logic_error);
}

// As other ranks in this process do, or a thread that saves.
TEST_F(CudaCaptureTest, MemoryThatAnotherThreadTakesMeanwhileIsNotOfTheWork) {
  std::unique_ptr<device::Graph> graph;
  Run([&] { number_.fill_(3); });
  Run([&] {
    graph = device_->Capture([&] {
      number_.mul_(2);
      std::thread([&] { at::empty({1 << 20}, number_.options()); }).join();
    });
  });
  Run([&] { graph->Launch(); });
  EXPECT_EQ(Number(), 6);
}

TEST_F(CudaCaptureTest, AnErrorDuringACaptureIsThatOfTheWork) {
  try {
    Run([&] { device_->Capture([] { throw std::runtime_error("from the work"); }); });
    FAIL() << "the work throws";
  } catch (const std::runtime_error& error) {
    EXPECT_STREQ(error.what(), "from the work");
  }
}

TEST_F(CudaCaptureTest, WaitingDuringACaptureIsRefused) {
  EXPECT_THROW(Run([&] { device_->Capture([&] { device_->Synchronize(); }); }), device::DeviceError);
}

}  // namespace
}  // namespace tandem::cuda

namespace tandem::parity {
namespace {

// What graphs replay has the bits of what runs call by call, over 20 steps and beside kernels of random
// length.

void ExpectReplaysOnGpus(JobOptions options, const std::vector<std::string>& scopes) {
  options.on_gpus = true;
  options.steps = 20;
  for (const char* strategy : {"zero1", "zero2", "zero3"}) {
    for (const int accumulation : {1, 4}) {
      options.strategy = strategy;
      options.microbatches_per_rank = accumulation;
      options.graphs = "none";
      options.overlap = false;
      const JobRun eager = RunJob(MakeJob(options), cuda::OnGpus());
      for (const bool overlap : {false, true}) {
        options.overlap = overlap;
        options.delay_weight_gradients = overlap;
        for (const std::string& scope : scopes) {
          options.graphs = scope;
          SCOPED_TRACE(testing::Message() << strategy << ", " << options.ranks << " GPUs, accumulation "
                                          << accumulation << (overlap ? ", overlap" : "") << ", " << scope);
          EXPECT_EQ(FirstDifference(eager, RunJob(MakeJob(options), cuda::OnGpus())), "");
          EXPECT_EQ(FirstDifference(eager, RunJob(MakeJob(options), cuda::OnSpinningGpus(7))), "");
        }
      }
    }
  }
}

int MostRanks() { return device::CountCudaDevices() >= 2 ? 2 : 1; }

TEST(CudaGraphsTest, DenseLayersHaveTheBitsOfEagerOnes) {
  for (const char* precision : {"", "compute: COMPUTE_TYPE_BF16"}) {
    for (int ranks = 1; ranks <= MostRanks(); ++ranks) {
      JobOptions options{.layers = 3, .precision = precision};
      options.ranks = ranks;
      ExpectReplaysOnGpus(options, {"attention", "attention,mlp"});
    }
  }
}

TEST(CudaGraphsTest, SparseLayersHaveTheBitsOfEagerOnes) {
  for (int ranks = 1; ranks <= MostRanks(); ++ranks) {
    JobOptions options = SparseJob();
    options.ranks = ranks;
    options.expert_parallel = ranks;
    ExpectReplaysOnGpus(options, {"router", AllParts(options)});
  }
}

TEST(CudaGraphsTest, LayersByAPatternHaveTheBitsOfEagerOnes) {
  for (int ranks = 1; ranks <= MostRanks(); ++ranks) {
    JobOptions options = SparseJob();
    options.model_type = "hybrid";
    options.pattern = "[M*E]M-";
    options.num_experts = 4;
    options.ranks = ranks;
    options.expert_parallel = ranks;
    ExpectReplaysOnGpus(options, {"mamba", AllParts(options)});
  }
}

TEST(CudaGraphsTest, CheckpointsAndValidationsComeBetweenReplays) {
  JobOptions options{.ranks = MostRanks(), .microbatches_per_rank = 2, .steps = 9, .on_gpus = true};
  options.validate_every_steps = 2;
  options.checkpoint_every_steps = 3;
  const TemporaryFolder folder;
  options.checkpoint_directory = folder.path() + "/eager";
  const JobRun eager = RunJob(MakeJob(options), cuda::OnGpus());
  options.checkpoint_directory = folder.path() + "/replayed";
  options.graphs = AllParts(options);
  EXPECT_EQ(FirstDifference(eager, RunJob(MakeJob(options), cuda::OnGpus())), "");
  options.resume = options.checkpoint_directory + "/step-3";
  EXPECT_EQ(FirstDifference(Tail(eager, 4), RunJob(MakeJob(options), cuda::OnGpus())), "");
}

// Larger heads, which cuDNN's attention and the tuned products compute.
TEST(CudaGraphsTest, LayersOfLargeProductsHaveTheBitsOfEagerOnes) {
  JobOptions options{.microbatches_per_rank = 2,
                     .steps = 10,
                     .hidden = 512,
                     .inner = 1024,
                     .heads = 8,
                     .kv_heads = 2,
                     .sequence_length = 256,
                     .on_gpus = true,
                     .precision = "compute: COMPUTE_TYPE_BF16"};
  const JobRun eager = RunJob(MakeJob(options), cuda::OnGpus());
  options.graphs = AllParts(options);
  EXPECT_EQ(FirstDifference(eager, RunJob(MakeJob(options), cuda::OnGpus())), "");
}

}  // namespace
}  // namespace tandem::parity
