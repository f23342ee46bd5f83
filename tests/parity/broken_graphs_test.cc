// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <functional>
#include <limits>
#include <map>
#include <memory>
#include <string>
#include <utility>

#include "ops/device_kernels.h"
#include "ops/operations.h"
#include "tests/device/forwarding_device.h"
#include "tests/ops/forwarding_kernels.h"
#include "tests/parity/expect_same.h"
#include "tests/parity/job.h"
#include "tests/parity/run.h"
#include "tests/trainer/forwarding_backend.h"
#include "trainer/backend.h"

namespace tandem::parity {
namespace {

// What goes wrong with graphs elsewhere, each planted once in what captures and replays: the comparison with
// a run without graphs, which every test of graphs makes (graphs_test.cc, on GPUs tests/cuda/graphs_test.cc),
// finds each. Faults of programs are planted in tests/schedules/check/graphed_test.cc, and what a GPU cannot
// capture in tests/cuda/graphs_test.cc.

enum class Fault {
  kNone,
  kOtherProductsInGraphs,  // a library chooses another algorithm, or another workspace, under capture
  kWorkRunsAtCapture,      // counters and sums count a warm-up
  kFirstLaunchIsLost,      // what a graph writes is what was there
  kGraphOfAnotherSegment,  // it has the addresses of other weights
  kFirstCopiesStay,        // what changes from step to step is as it was at the capture
};

thread_local bool in_graph = false;

class FaultyGraph final : public device::Graph {
 public:
  FaultyGraph(Fault fault, std::function<void()> work) : fault_(fault), work_(std::move(work)) {}

  void Launch() override {
    if (fault_ == Fault::kFirstLaunchIsLost && !std::exchange(launched_, true)) {
      return;
    }
    in_graph = true;
    work_();
    in_graph = false;
  }

 private:
  const Fault fault_;
  const std::function<void()> work_;
  bool launched_ = false;
};

// Of one rank, whose graphs are all of its stream "compute".
class FaultyDevice final : public device::ForwardingDevice {
 public:
  FaultyDevice(Device& inner, Fault fault) : ForwardingDevice(inner), fault_(fault) {}

  std::unique_ptr<device::Graph> Capture(std::function<void()> work) override {
    if (fault_ == Fault::kWorkRunsAtCapture) {
      work();
    }
    const std::function<void()> former = std::exchange(former_, work);
    const bool is_former = fault_ == Fault::kGraphOfAnotherSegment && former != nullptr;
    return std::make_unique<FaultyGraph>(fault_, is_former ? former : std::move(work));
  }

  void Copy(void* to, const void* from, int64_t bytes) override {
    if (fault_ == Fault::kFirstCopiesStay) {
      const auto [first, is_new] = copied_.try_emplace(to);
      if (is_new) {
        first->second.assign(static_cast<const char*>(from), bytes);
      }
      std::memcpy(to, first->second.data(), bytes);
      return;
    }
    ForwardingDevice::Copy(to, from, bytes);
  }

 private:
  const Fault fault_;
  std::function<void()> former_;
  std::map<void*, std::string> copied_;  // by where it was copied to
};

// In graphs, the first element of each product in fp32 is the next larger number.
class OtherProducts final : public ops::ForwardingKernels {
 public:
  using ForwardingKernels::Bind;
  using ForwardingKernels::ForwardingKernels;

  ops::Call Bind(const ops::ProductArgs& product) const override {
    return [multiply = inner_.Bind(product), output = product.output] {
      multiply();
      if (in_graph && output.elements() > 0) {
        auto* const first = static_cast<float*>(output.begin);
        *first = std::nextafter(*first, std::numeric_limits<float>::infinity());
      }
    };
  }
};

class FaultyBackend final : public trainer::ForwardingBackend {
 public:
  explicit FaultyBackend(Fault fault)
      : ForwardingBackend(trainer::MakeCpuBackend()),
        fault_(fault),
        device_(inner().device(), fault),
        other_products_(inner().operations().kernels()),
        other_operations_(other_products_) {}

  device::Device& device() override { return device_; }
  const ops::Operations& operations() const override {
    return fault_ == Fault::kOtherProductsInGraphs ? other_operations_ : ForwardingBackend::operations();
  }

 private:
  const Fault fault_;
  FaultyDevice device_;
  const OtherProducts other_products_;
  const ops::Operations other_operations_;
};

JobRun RunWith(Fault fault, const JobOptions& options) {
  return RunJob(MakeJob(options),
                {.make_backend = [fault](int) { return std::make_unique<FaultyBackend>(fault); }});
}

// Expects that a run of `options`, which have graphs, has the bits of one without them, and not with `fault`.
void ExpectCaught(Fault fault, JobOptions options) {
  ASSERT_NE(options.graphs, "none");
  const JobRun replayed = RunWith(fault, options);
  const JobRun sound = RunWith(Fault::kNone, options);
  options.graphs = "none";
  const JobRun eager = RunJob(MakeJob(options));
  EXPECT_EQ(FirstDifference(eager, sound), "");
  EXPECT_NE(FirstDifference(eager, replayed), "");
}

JobOptions Dense() {
  return {.ranks = 2,
          .microbatches_per_rank = 2,
          .steps = 4,
          .hidden = 16,
          .inner = 24,
          .heads = 2,
          .kv_heads = 1,
          .graphs = "attention,mlp"};
}

TEST(BrokenGraphsTest, AnotherAlgorithmUnderCaptureIsCaught) {
  ExpectCaught(Fault::kOtherProductsInGraphs, Dense());
}

// The tokens that routers count for the biases of their experts.
TEST(BrokenGraphsTest, CountersThatAWarmUpIncrementsAreCaught) {
  JobOptions options = Dense();
  options.model_type = "deepseek_v3";
  options.num_experts = 8;
  options.router_aux_loss = 0;
  options.bias_update_rate = 0.05;
  options.graphs = "router";
  ExpectCaught(Fault::kWorkRunsAtCapture, options);
}

TEST(BrokenGraphsTest, BuffersThatAGraphMissesAreCaught) { ExpectCaught(Fault::kFirstLaunchIsLost, Dense()); }

TEST(BrokenGraphsTest, WeightsOfAnotherAddressAreCaught) {
  ExpectCaught(Fault::kGraphOfAnotherSegment, Dense());
}

// Where documents start in the batch.
TEST(BrokenGraphsTest, ValuesFixedAtCaptureAreCaught) {
  JobOptions options = Dense();
  options.end_of_document = ' ';
  ExpectCaught(Fault::kFirstCopiesStay, options);
}

}  // namespace
}  // namespace tandem::parity
