// SPDX-License-Identifier: Apache-2.0
#include "schedules/build/stage_frame.h"

#include <algorithm>
#include <set>
#include <string>
#include <tuple>
#include <utility>

#include "absl/strings/str_cat.h"
#include "platform/check.h"
#include "schedules/program/unit_bytes.h"

namespace tandem::schedules {
namespace {

constexpr int64_t kAlignment = 256;

class Builder {
 public:
  Builder(const Outline& outline, const BuildOptions& options) : outline_(outline), options_(options) {}

  StageFrame Build() {
    TANDEM_CHECK(options_.units.size() == outline_.units.size(), "there are sizes for every unit");
    TANDEM_CHECK(options_.keep_gathered.empty() || options_.keep_gathered.size() == outline_.units.size(),
                 "keep_gathered has an entry per unit");
    AddStreams();
    for (UnitId unit = 0; unit < static_cast<int>(outline_.units.size()); ++unit) {
      AddUnit(unit);
    }
    for (size_t state = 0; state < outline_.states.size(); ++state) {
      frame_.states.push_back(Add(outline_.states[state].name, BufferKind::kNodeState,
                                  static_cast<int>(state), outline_.states[state].bytes));
    }
    frame_.norm = Communicator(options_.norm_group, "norm", false);
    AddCounts();
    AddRings();
    AddSaved();
    return std::move(frame_);
  }

 private:
  StreamId StreamNamed(const std::string& name, bool copies_host = false) {
    for (size_t i = 0; i < frame_.streams.size(); ++i) {
      if (frame_.streams[i].name == name) {
        return static_cast<StreamId>(i);
      }
    }
    frame_.streams.push_back({name, copies_host});
    return static_cast<StreamId>(frame_.streams.size()) - 1;
  }

  CommunicatorId Communicator(const std::string& group, const std::string& purpose, bool window) {
    const CommunicatorUse use{group, purpose, window};
    const auto found = std::find(frame_.communicators.begin(), frame_.communicators.end(), use);
    if (found != frame_.communicators.end()) {
      return static_cast<CommunicatorId>(found - frame_.communicators.begin());
    }
    frame_.communicators.push_back(use);
    return static_cast<CommunicatorId>(frame_.communicators.size()) - 1;
  }

  BufferId Add(const std::string& name, BufferKind kind, int subject, int64_t bytes,
               std::vector<BufferPart> parts = {}) {
    frame_.buffers.push_back({.name = name,
                              .kind = kind,
                              .subject = subject,
                              .life = InfoOf(kind).life,
                              .bytes = {bytes, bytes},
                              .alignment = kAlignment,
                              .parts = std::move(parts)});
    return static_cast<BufferId>(frame_.buffers.size()) - 1;
  }

  void AddStreams() {
    frame_.compute = StreamNamed("compute");
    frame_.gather = StreamNamed("gather");
    frame_.reduce = StreamNamed("reduce");
    frame_.host_to_device = StreamNamed("host-to-device", true);
    frame_.device_to_host = StreamNamed("device-to-host", true);
    if (options_.saves) {
      frame_.save = StreamNamed("save");
    }
    for (const Node& node : outline_.nodes) {
      frame_.node_streams.push_back(StreamNamed(node.stream));
      frame_.node_communicators.push_back(node.group.empty() ? -1
                                                             : Communicator(node.group, node.purpose, true));
    }
    for (const Node& node : outline_.nodes) {
      const bool separate =
          options_.separate_weights && HasWeightHalf(node) &&
          outline_.units[node.backward_weight.parameter_gradients.front().unit].group == UnitGroup::kExpert;
      frame_.weight_streams.push_back(StreamNamed(separate ? "weights" : node.stream));
    }
    if (std::any_of(outline_.values.begin(), outline_.values.end(),
                    [](const Value& value) { return value.kind == ValueKind::kHost; })) {
      frame_.host = StreamNamed("host");
    }
    if (!outline_.received.empty()) {
      frame_.receives.stream = StreamNamed("receive");
      frame_.gradient_sends.stream = StreamNamed("send gradients");
    }
    if (!outline_.sent.empty()) {
      frame_.sends.stream = StreamNamed("send");
      frame_.gradient_receives.stream = StreamNamed("receive gradients");
    }
    AddLinks();
  }

  // A link for each direction of values and of gradients. Two stages make those that they share in the same
  // order.
  void AddLinks() {
    constexpr bool kGradients[] = {false, true};
    const int own = outline_.stage;
    std::set<std::tuple<int, int, bool>> links;  // from, to, gradients
    for (const bool gradients : kGradients) {
      for (const Boundary& boundary : outline_.received) {
        links.insert(gradients ? std::tuple(own, boundary.stage, true)
                               : std::tuple(boundary.stage, own, false));
      }
      for (const Boundary& boundary : outline_.sent) {
        links.insert(gradients ? std::tuple(boundary.stage, own, true)
                               : std::tuple(own, boundary.stage, false));
      }
    }
    const auto link = [&](int from, int to, bool gradients) {
      const char* const what = gradients ? "gradients" : "values";
      return Communicator(absl::StrCat("pp/", from, "-", to, "/", what), what, false);
    };
    for (const auto& [from, to, gradients] : links) {
      link(from, to, gradients);
    }
    for (const Boundary& boundary : outline_.received) {
      frame_.receives.communicators.push_back(link(boundary.stage, own, false));
      frame_.gradient_sends.communicators.push_back(link(own, boundary.stage, true));
    }
    for (const Boundary& boundary : outline_.sent) {
      frame_.sends.communicators.push_back(link(own, boundary.stage, false));
      frame_.gradient_receives.communicators.push_back(link(boundary.stage, own, true));
    }
  }

  void AddUnit(UnitId id) {
    const Unit& unit = outline_.units[id];
    const UnitSizes& sizes = options_.units[id];
    const MeshAxes& axes = AxesOf(options_, unit);
    UnitFrame frame{.memory = MemoryOf(outline_, options_, id)};
    const UnitMemory& memory = frame.memory;
    const auto persistent = [&](const char* what, BufferKind kind, int64_t bytes,
                                std::vector<BufferPart> parts = {}) {
      return Add(absl::StrCat(unit.name, " ", what), kind, id, bytes, std::move(parts));
    };
    // Where nothing is gathered, nodes read parts of these.
    const std::vector<BufferPart> read_parts = memory.gathers || memory.gathers_outer
                                                   ? std::vector<BufferPart>()
                                                   : PartsOf(options_, outline_, id, &UnitPrecision::compute);
    const bool publishes = memory.published > 0;
    frame.weights = persistent("weights", BufferKind::kWeights, memory.weights,
                               publishes ? std::vector<BufferPart>() : read_parts);
    if (publishes) {
      frame.published = persistent("published", BufferKind::kPublished, memory.published, read_parts);
    }
    if (memory.gathers) {
      frame.gather = Communicator(axes.gather_group, "gather", true);
    }
    if (memory.gathers_outer) {
      frame_.outer = StreamNamed("outer");
      frame.outer_gather = Communicator(axes.outer_group, "gather", true);
    }
    if (!unit.frozen) {
      frame.gradients = persistent("gradients", BufferKind::kGradients, memory.gradients);
      const int64_t moment = memory.optimizer_state / 2;
      frame.optimizer_state =
          persistent("optimizer state", BufferKind::kOptimizerState, memory.optimizer_state,
                     {{"exp_avg", 0, moment}, {"exp_avg_sq", moment, memory.optimizer_state}});
      const auto ring = [&](const char* what, BufferKind kind, int64_t bytes) {
        return Add(absl::StrCat(unit.name, " ", what), kind, id, bytes);
      };
      frame.norm_terms = ring("norm terms", BufferKind::kNormTerms, sizes.norm_terms_bytes);
      if (options_.parameter_norms) {
        frame.update_norms = ring("update norms", BufferKind::kUpdateNorms, sizes.update_norms_bytes);
        frame.host_update_norms =
            ring("update norms (host)", BufferKind::kHostUpdateNorms, sizes.update_norms_bytes);
      }
      if (memory.exchanges) {
        frame.reduce = Communicator(axes.inner_group, "reduce", true);
      }
      if (memory.reduces_outer) {
        frame_.outer = StreamNamed("outer");
        frame.outer_reduce = Communicator(axes.outer_group, "reduce", true);
      }
    }
    frame_.units.push_back(frame);
  }

  void AddCounts() {
    for (const NodeState& state : outline_.states) {
      if (state.counter >= 0) {
        frame_.counts = Communicator(options_.counts_group, "counts", false);
        frame_.counts_bytes +=
            outline_.states.at(state.counter).bytes * options_.dense.inner * options_.dense.outer;
      }
    }
  }

  // Where the host has what a checkpoint holds. Of frozen units, too, which no instruction copies.
  void AddSaved() {
    frame_.host_states.assign(outline_.states.size(), -1);
    if (!options_.saves) {
      return;
    }
    const auto saved = [&](BufferId of) {
      const Buffer buffer = frame_.buffers[of];
      return Add(absl::StrCat(buffer.name, " (saved)"), HostCopyOf(buffer.kind), buffer.subject,
                 buffer.bytes.bound, buffer.parts);
    };
    for (UnitFrame& unit : frame_.units) {
      unit.host_weights = saved(unit.weights);
      unit.host_optimizer_state = unit.optimizer_state < 0 ? -1 : saved(unit.optimizer_state);
    }
    for (size_t state = 0; state < outline_.states.size(); ++state) {
      if (outline_.states[state].counter >= 0) {
        frame_.host_states[state] = saved(frame_.states[state]);
      }
    }
  }

  // A part a microbatch, of the program that has the most of them.
  std::vector<BufferPart> MicrobatchParts(int64_t bytes, int64_t alignment) const {
    std::vector<BufferPart> parts;
    const int count = std::max(options_.num_microbatches, options_.num_validation_microbatches);
    const int64_t stride = (bytes + alignment - 1) / alignment * alignment;
    for (int microbatch = 0; microbatch < count; ++microbatch) {
      parts.push_back({absl::StrCat("mb ", microbatch), microbatch * stride, microbatch * stride + bytes});
    }
    return parts;
  }

  // The device's ring and its twin on the host.
  std::pair<BufferId, BufferId> AddRing(const std::string& name, BufferKind kind, BufferKind host_kind,
                                        int subject, int64_t bytes,
                                        const std::vector<BufferPart>& parts = {}) {
    const int64_t total = parts.empty() ? bytes : parts.back().end;
    const BufferId device = Add(name, kind, subject, total, parts);
    return {device, Add(absl::StrCat(name, " (host)"), host_kind, subject, total, parts)};
  }

  void AddRings() {
    std::tie(frame_.inputs, frame_.host_inputs) =
        AddRing("inputs", BufferKind::kInputs, BufferKind::kHostInputs, -1, options_.rings.inputs_bytes);
    std::tie(frame_.outcome, frame_.host_outcome) =
        AddRing("outcome", BufferKind::kOutcome, BufferKind::kHostOutcome, -1, options_.rings.outcome_bytes);
    if (outline_.batch >= 0) {
      const Value& value = outline_.values[outline_.batch];
      std::tie(frame_.batch, frame_.host_batch) =
          AddRing(value.name, BufferKind::kBatch, BufferKind::kHostBatch, outline_.batch, 0,
                  MicrobatchParts(value.bytes.bound, kAlignment));
    }
    frame_.losses.assign(outline_.values.size(), -1);
    frame_.host_losses.assign(outline_.values.size(), -1);
    for (const ValueId loss : outline_.losses) {
      const Value& value = outline_.values[loss];
      std::tie(frame_.losses[loss], frame_.host_losses[loss]) =
          AddRing(value.name, BufferKind::kLosses, BufferKind::kHostLosses, loss, 0,
                  MicrobatchParts(value.bytes.bound, 8));
    }
  }

  const Outline& outline_;
  const BuildOptions& options_;
  StageFrame frame_;
};

}  // namespace

UnitMemory MemoryOf(const Outline& outline, const BuildOptions& options, UnitId id) {
  const Unit& unit = outline.units[id];
  const MeshAxes& axes = AxesOf(options, unit);
  const Strategy& strategy = PlacementOf(options, unit);
  const bool replicates = strategy.inner.optimizer == Placement::kReplicate;
  const bool outer_shards = strategy.outer.optimizer == Placement::kShard;
  TANDEM_CHECK(!replicates || strategy.inner.parameters == Placement::kReplicate,
               "a rank that updates all parameters keeps them");
  TANDEM_CHECK(axes.inner >= 1 && axes.outer >= 1, "a group has a rank at least");
  TANDEM_CHECK(options.units[id].classes.size() == unit.classes.size(), "there are sizes for every class");
  for (size_t c = 0; c < unit.classes.size(); ++c) {
    TANDEM_CHECK(options.units[id].classes[c].shard_elements * axes.inner >= unit.classes[c].elements,
                 "the shards hold the unit");
  }
  const auto bytes = [&](Extent extent, int UnitPrecision::*type) {
    return BytesOf(options, outline, id, extent, type);
  };
  const Extent updated = replicates ? Extent::kAll : outer_shards ? Extent::kOuterShard : Extent::kShard;
  constexpr auto kMain = &UnitPrecision::main;
  constexpr auto kCompute = &UnitPrecision::compute;
  UnitMemory memory{
      .gathers = GathersInner(options, unit),
      .gathers_once = strategy.inner.parameters == Placement::kReplicate,
      .keeps_gathered = !options.keep_gathered.empty() && options.keep_gathered[id],
      .gathers_outer = GathersOuter(options, unit),
      .exchanges = HasInnerPeers(options, unit),
      .accumulates = strategy.inner.gradients == Placement::kPartial,
      .reduces_outer = strategy.outer.gradients == Placement::kPartial,
      // Frozen parameters are never updated, so that they need no more than what is computed with.
      .weights = bytes(updated, unit.frozen ? kCompute : kMain),
      .published = IsPublished(unit) ? bytes(updated, kCompute) : 0,
      .gathered = bytes(Extent::kAll, kCompute),
      .outer_gathered = bytes(Extent::kShard, kCompute),
  };
  if (!unit.frozen) {
    memory.gradients = bytes(replicates ? Extent::kAll : Extent::kShard, kMain);
    memory.optimizer_state = 2 * bytes(updated, kMain);
    memory.contribution = bytes(Extent::kAll, &UnitPrecision::transport);
    memory.collected = bytes(Extent::kAll, kMain);
    memory.outer_staging = bytes(Extent::kShard, kMain);
  }
  return memory;
}

StageFrame MakeStageFrame(const Outline& outline, const BuildOptions& options) {
  return Builder(outline, options).Build();
}

}  // namespace tandem::schedules
