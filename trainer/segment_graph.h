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

// The calls of one or more equal segments, replayed by one graph. The first Run makes the calls one by one,
// so that libraries can set up what they need; the second captures them; it and later ones launch the graph.
// Used by one stream.
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

// The graphs of a rank's programs. Not thread-safe; on a device that finishes work in calls, graphs of
// different streams may run at the same time.
class SegmentGraphs {
 public:
  // Both arguments must outlive this object. `outline` is for messages.
  SegmentGraphs(const schedules::Outline& outline, device::Device& device)
      : outline_(outline), device_(device) {}

  // Returns the graph of all segments with the same calls, valid as long as this object. Throws
  // std::logic_error if the segment's calls differ between the parities.
  SegmentGraph& Of(const Segment& segment);

  // Runs the graph on the current stream. When the last graph is captured, logs how much GPU memory all
  // graphs use.
  void Run(SegmentGraph& graph);

 private:
  const schedules::Outline& outline_;
  device::Device& device_;
  std::map<std::vector<std::shared_ptr<const Call>>, std::unique_ptr<SegmentGraph>> graphs_;
  size_t num_captured_ = 0;  // number captured on a GPU
  int64_t bytes_ = 0;        // GPU memory that the captures used
};

}  // namespace tandem::trainer
