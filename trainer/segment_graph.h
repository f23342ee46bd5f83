// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <utility>
#include <vector>

#include "device/device.h"
#include "schedules/program/outline.h"
#include "trainer/bound_program.h"

namespace tandem::trainer {

// The calls of segments that do the same to the same memory, which one graph replays. On the first run they
// are called one by one, so that libraries can set up what they need; on the second they are captured; later
// the graph is launched. Used by the work of one stream.
class SegmentGraph {
 public:
  explicit SegmentGraph(std::vector<std::shared_ptr<const Call>> calls) : calls_(std::move(calls)) {}
  SegmentGraph(const SegmentGraph&) = delete;
  SegmentGraph& operator=(const SegmentGraph&) = delete;

  // Runs the calls on the current stream. Throws what a call or Device::Capture throws.
  void Run(device::Device& device);

  // Whether the next Run will capture.
  bool captures() const { return has_run_ && graph_ == nullptr; }

  // The index of the call that was called last.
  size_t at() const { return at_; }

 private:
  void CallAll();

  const std::vector<std::shared_ptr<const Call>> calls_;
  size_t at_ = 0;
  bool has_run_ = false;
  std::unique_ptr<device::Graph> graph_;
};

// The graphs of a rank's programs. Not thread-safe, except that if work is done when its call returns, graphs
// of different streams may run at once.
class SegmentGraphs {
 public:
  // Both arguments outlive it. `outline` is for messages.
  SegmentGraphs(const schedules::Outline& outline, device::Device& device)
      : outline_(outline), device_(device) {}

  // The graph of all segments with the same calls, in runs of both parities. It lives as long as this object.
  // Throws std::logic_error if the segment's calls differ between the parities.
  SegmentGraph& Of(const Segment& segment);

  // Runs the graph on the current stream. When the last graph is captured, logs how much of a GPU's memory
  // all graphs take.
  void Run(SegmentGraph& graph);

 private:
  const schedules::Outline& outline_;
  device::Device& device_;
  std::map<std::vector<std::shared_ptr<const Call>>, std::unique_ptr<SegmentGraph>> graphs_;
  size_t num_captured_ = 0;  // number captured on a GPU
  int64_t bytes_ = 0;        // that they take of it; collectives take more between two captures
};

}  // namespace tandem::trainer
