// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <memory>
#include <utility>
#include <vector>

#include "device/device.h"
#include "trainer/bound_program.h"

namespace tandem::trainer {

// The calls of segments that do the same to the same memory, which one graph replays. The first time they are
// called one by one, so that libraries set up what they need; the second time they are captured; from then on
// the graph is launched. Used by the work of one stream.
class SegmentGraph {
 public:
  explicit SegmentGraph(std::vector<std::shared_ptr<const Call>> calls) : calls_(std::move(calls)) {}
  SegmentGraph(const SegmentGraph&) = delete;
  SegmentGraph& operator=(const SegmentGraph&) = delete;

  // On the current stream. Throws what a call or Device::Capture throws.
  void Run(device::Device& device);

  // Whether the next Run captures.
  bool captures() const { return has_run_ && graph_ == nullptr; }

  // Which of the calls was called last.
  size_t at() const { return at_; }

 private:
  void CallAll();

  const std::vector<std::shared_ptr<const Call>> calls_;
  size_t at_ = 0;
  bool has_run_ = false;
  std::unique_ptr<device::Graph> graph_;
};

}  // namespace tandem::trainer
