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

// The graphs of a rank's programs. Not thread-safe, but that graphs of different streams may run at once
// where work is done when its call returns.
class SegmentGraphs {
 public:
  // Both outlive it. outline: for messages.
  SegmentGraphs(const schedules::Outline& outline, device::Device& device)
      : outline_(outline), device_(device) {}

  // That of all segments with the same calls, in runs of both parities; lives as long as this. Throws
  // std::logic_error if the segment's calls differ between the parities.
  SegmentGraph& Of(const Segment& segment);

  // On the current stream. Logs what all graphs take of a GPU's memory when the last one is captured.
  void Run(SegmentGraph& graph);

 private:
  const schedules::Outline& outline_;
  device::Device& device_;
  std::map<std::vector<std::shared_ptr<const Call>>, std::unique_ptr<SegmentGraph>> graphs_;
  size_t num_captured_ = 0;  // of a GPU's
  int64_t used_before_ = 0;
};

}  // namespace tandem::trainer
