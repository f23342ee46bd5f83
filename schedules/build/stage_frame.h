// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <vector>

#include "schedules/program/build_options.h"
#include "schedules/program/program.h"

namespace tandem::schedules {

// Where a unit's placement and precision put its memory, on one rank.
struct UnitMemory {
  bool gathers = true;  // over the inner axis; otherwise a rank has all that is gathered, and nodes read it
  bool gathers_once = false;    // one gather serves the whole run
  bool keeps_gathered = false;  // one gather serves all passes of a microbatch
  bool gathers_outer = false;   // the inner shard is gathered over the outer group, before the inner axis
  bool exchanges = true;        // contributions, over the inner axis; otherwise the rank's own are all
  bool accumulates = false;     // contributions are accumulated in full, and reduced once a run
  bool reduces_outer = false;   // an outer stage follows the last reduction
  int64_t weights = 0;          // bytes from here on
  int64_t published = 0;        // 0: the unit is not published
  int64_t gradients = 0;
  int64_t optimizer_state = 0;
  int64_t gathered = 0;
  int64_t outer_gathered = 0;
  int64_t contribution = 0;  // and staging of its exchange
  int64_t collected = 0;     // and full gradient, and staging of its exchange
  int64_t outer_staging = 0;
};

UnitMemory MemoryOf(const Outline& outline, const BuildOptions& options, UnitId unit);

// Ids of what belongs to a unit; -1: it has none.
struct UnitFrame {
  UnitMemory memory;
  BufferId weights = -1;
  BufferId published = -1;
  BufferId gradients = -1;
  BufferId optimizer_state = -1;
  BufferId norm_terms = -1;
  BufferId update_norms = -1;
  BufferId host_update_norms = -1;
  BufferId host_weights = -1;  // both of a job that saves
  BufferId host_optimizer_state = -1;
  CommunicatorId gather = -1;  // -1, both: the rank is alone on the axis
  CommunicatorId reduce = -1;
  CommunicatorId outer_gather = -1;
  CommunicatorId outer_reduce = -1;
  // What a gather reads, or the nodes themselves: the compute type's copy.
  BufferId shard() const { return published >= 0 ? published : weights; }
};

// What all programs of a stage have in common: streams, communicators, persistent buffers and rings.
struct StageFrame {
  std::vector<Stream> streams;
  std::vector<CommunicatorUse> communicators;
  std::vector<Buffer> buffers;

  std::vector<UnitFrame> units;
  std::vector<BufferId> states;
  std::vector<BufferId> host_states;  // -1: not saved
  std::vector<BufferId> losses;       // value → ring, -1: not a loss
  std::vector<BufferId> host_losses;  // same
  BufferId inputs = -1;
  BufferId host_inputs = -1;
  BufferId batch = -1;
  BufferId host_batch = -1;
  BufferId outcome = -1;
  BufferId host_outcome = -1;

  StreamId compute = -1;
  StreamId gather = -1;
  StreamId reduce = -1;
  StreamId host_to_device = -1;
  StreamId device_to_host = -1;
  StreamId save = -1;  // -1: the job does not save
  StreamId outer = -1;
  StreamId host = -1;
  StreamId send = -1;  // of values; -1, all four: nothing goes to or comes from there
  StreamId receive = -1;
  StreamId send_gradients = -1;
  StreamId receive_gradients = -1;
  std::vector<StreamId> node_streams;
  std::vector<StreamId> weight_streams;  // of the nodes' weight halves
  std::vector<CommunicatorId> node_communicators;
  CommunicatorId norm = -1;
  CommunicatorId counts = -1;  // of states that are updated; -1: there are none
  int64_t counts_bytes = 0;    // counters of all ranks
  // For outline.received and outline.sent, by index; the gradient goes the other way.
  std::vector<CommunicatorId> receives;
  std::vector<CommunicatorId> sends;
  std::vector<CommunicatorId> gradient_receives;
  std::vector<CommunicatorId> gradient_sends;
};

StageFrame MakeStageFrame(const Outline& outline, const BuildOptions& options);

}  // namespace tandem::schedules
