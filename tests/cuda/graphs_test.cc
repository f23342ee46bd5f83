// SPDX-License-Identifier: Apache-2.0
#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>
#include <gtest/gtest.h>

#include <functional>
#include <memory>
#include <stdexcept>
#include <string>
#include <thread>
#include <tuple>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "device/cuda/device.h"
#include "device/static_arena.h"
#include "schedules/passes/segments.h"
#include "tests/cuda/spinning_backend.h"
#include "tests/device/tensors.h"
#include "tests/parity/expect_same.h"
#include "tests/parity/job.h"
#include "tests/parity/pairs.h"
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

TEST_F(CudaCaptureTest, OnlyLaunchesOfACaptureDoItsWork) {
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

TEST_F(CudaCaptureTest, WorkThatTakesLibTorchsMemoryIsRefused) {
  Run([&] { at::empty({1}, number_.options()); });  // so that the allocator has a piece to give out
  EXPECT_THROW(
      Run([&] { device_->Capture([&] { number_.copy_(at::empty({1}, number_.options()).fill_(1)); }); }),
      std::logic_error);
}

// As other ranks in this process do, or a thread that saves.
TEST_F(CudaCaptureTest, MemoryOfAnotherThreadIsNotTheWorks) {
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

TEST_F(CudaCaptureTest, AnErrorDuringACaptureIsTheWorks) {
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

// What graphs replay has the bits of what runs call by call, over 20 steps, whatever the model, the parts
// that are replayed, the schedule, the strategy, and whatever comes between the replays.

constexpr uint64_t kSeed = 20261129;
constexpr int64_t kSavedStep = 8;

struct Value {
  std::string name;
  std::function<void(JobOptions&)> set;
};

void SetSparse(JobOptions& options) {
  JobOptions sparse = SparseJob();
  sparse.ranks = options.ranks;
  sparse.expert_parallel = options.ranks;
  options = std::move(sparse);
}

void SetPattern(JobOptions& options) {
  SetSparse(options);
  options.model_type = "hybrid";
  options.pattern = "[M*E]MG[G-]";
  options.num_experts = 4;
}

// Sets the model by `model`, and graphs of `parts`; of all that the model has if there are none.
Value Replayed(const std::string& name, const std::function<void(JobOptions&)>& model,
               const std::string& parts) {
  return {name + (parts.empty() ? ", all parts" : ", " + parts), [=](JobOptions& options) {
            model(options);
            options.graphs = parts.empty() ? AllParts(options) : parts;
          }};
}

// The first lane replaces all options but the ranks.
const std::vector<std::vector<Value>>& Lanes() {
  const auto dense = [](JobOptions& options) { options = {.ranks = options.ranks, .layers = 3}; };
  static const auto* const lanes = new std::vector<std::vector<Value>>{
      {Replayed("dense", dense, "attention"), Replayed("dense", dense, ""),
       Replayed("experts", SetSparse, "attention"), Replayed("experts", SetSparse, "router"),
       Replayed("experts", SetSparse, ""), Replayed("a pattern", SetPattern, "mamba"),
       Replayed("a pattern", SetPattern, "")},
      {{"sequential", [](JobOptions&) {}},
       {"overlap", [](JobOptions& options) { options.overlap = true; }},
       {"delayed",
        [](JobOptions& options) {
          options.overlap = true;
          options.delay_weight_gradients = true;
        }}},
      {{"zero1", [](JobOptions& options) { options.strategy = "zero1"; }},
       {"zero2", [](JobOptions& options) { options.strategy = "zero2"; }},
       {"zero3", [](JobOptions& options) { options.strategy = "zero3"; }}},
      {{"1 microbatch", [](JobOptions&) {}},
       {"4 microbatches", [](JobOptions& options) { options.microbatches_per_rank = 4; }}},
      {{"fp32", [](JobOptions&) {}},
       {"bf16", [](JobOptions& options) { options.precision = "compute: COMPUTE_TYPE_BF16"; }}},
      {{"nothing between", [](JobOptions&) {}},
       {"validations, checkpoints and a resumption between",
        [](JobOptions& options) {
          options.validate_every_steps = 3;
          options.checkpoint_every_steps = kSavedStep;
        }}},
      {{"as issued", [](JobOptions&) {}}, {"beside kernels of random length", [](JobOptions&) {}}},
  };
  return *lanes;
}

struct Case {
  std::string name;
  JobOptions options;
  bool spins = false;  // kernels of random length run beside it
};

Case CaseOf(const Choice& choice, int ranks) {
  Case result{.name = absl::StrCat(ranks, " GPUs"), .options = {.ranks = ranks}, .spins = choice.back() == 1};
  for (size_t lane = 0; lane < choice.size(); ++lane) {
    const Value& value = Lanes()[lane][choice[lane]];
    value.set(result.options);
    absl::StrAppend(&result.name, ", ", value.name);
  }
  result.options.on_gpus = true;
  result.options.steps = 20;
  return result;
}

std::vector<Case> Cases(int ranks) {
  std::vector<int> sizes;
  for (const std::vector<Value>& lane : Lanes()) {
    sizes.push_back(static_cast<int>(lane.size()));
  }
  std::vector<Case> cases;
  for (const Choice& choice : ChoicesThatCoverAllPairs(sizes, kSeed)) {
    cases.push_back(CaseOf(choice, ranks));
  }
  return cases;
}

void Expect(const Case& each) {
  SCOPED_TRACE(each.name);
  JobOptions options = each.options;
  const RunOptions run = each.spins ? cuda::OnSpinningGpus(7) : cuda::OnGpus();
  const TemporaryFolder folder;
  const bool saves = options.checkpoint_every_steps > 0;
  options.checkpoint_directory = saves ? folder.path() + "/replayed" : "";
  JobOptions eager = options;
  eager.graphs = "none";
  eager.overlap = false;
  eager.delay_weight_gradients = false;
  eager.checkpoint_directory = saves ? folder.path() + "/eager" : "";
  const JobRun expected = RunJob(MakeJob(eager), cuda::OnGpus());
  EXPECT_EQ(FirstDifference(expected, RunJob(MakeJob(options), run)), "");
  if (saves) {
    options.resume = absl::StrCat(options.checkpoint_directory, "/step-", kSavedStep);
    EXPECT_EQ(FirstDifference(Tail(expected, kSavedStep + 1), RunJob(MakeJob(options), run)), "")
        << "resumed";
  }
}

// Planned without a GPU.
TEST(CudaGraphsCasesTest, EachHasGraphs) {
  for (const int ranks : {1, 2}) {
    for (const Case& each : Cases(ranks)) {
      EXPECT_GT(schedules::CountGraphs(MakeJob(each.options).stage.train), 0) << each.name;
    }
  }
}

// In parts, for processes that share the GPUs.
constexpr int kParts = 4;
class CudaGraphsTest : public testing::TestWithParam<std::tuple<int, int>> {};

TEST_P(CudaGraphsTest, ASampleOfAllPairsHasEagerBits) {
  const auto [ranks, part] = GetParam();
  if (device::CountCudaDevices() < ranks) {
    GTEST_SKIP() << "needs " << ranks << " GPUs";
  }
  const std::vector<Case> cases = Cases(ranks);
  for (size_t i = part; i < cases.size(); i += kParts) {
    Expect(cases[i]);
  }
}

INSTANTIATE_TEST_SUITE_P(Gpus, CudaGraphsTest,
                         testing::Combine(testing::Values(1, 2), testing::Range(0, kParts)),
                         [](const auto& info) {
                           return absl::StrCat(std::get<0>(info.param), "Part", std::get<1>(info.param));
                         });

// Larger heads, which cuDNN's attention and the tuned products compute.
TEST(CudaGraphsOfLargeProductsTest, LayersHaveTheBitsOfEagerOnes) {
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
