// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace tandem::schedules {

// What a device can do: rates that estimate any instruction (cost.h), and times measured from a run.

struct ComputeRate {
  double flops_per_second = 0;       // what large products reach
  double peak_flops_per_second = 0;  // the vendor's figure, which MFU is relative to; 0: not known
};

// How ranks reach each other. A collective over n ranks takes
//   latency + (n - 1) · hop + bytes · (n - 1) / n / bytes_per_second,
// bytes being the whole gathered or reduced buffer, as NCCL's tests count a bus bandwidth (nccl-tests,
// doc/PERFORMANCE.md) and NCCL's model of a ring counts its latency (nccl, src/graph/tuning.cc).
//
// Where there are a link and a network, ranks are taken to fill machines in the order of their numbers,
// link.max_ranks on each. A group of neighbours then has up to so many members on a machine; one whose
// members are s ranks apart, as replicas are, max_ranks / s, and one at least. What leaves a machine goes
// through adapters, of which every rank has its own: a group reaches as much of network.bytes_per_second as
// it has of a machine's ranks.
struct LinkRates {
  int max_ranks = 0;  // ranks that reach each other this way; 0: any number
  double bytes_per_second = 0;
  double latency_seconds = 0;
  double hop_seconds = 0;
};

// The time of one kind of instruction, as measured.
struct MeasuredTime {
  std::string kind;        // KindOf (cost.h): "backward-input layers.*.mlp bf16", "reduce layers.* add"
  double seconds = 0;      // undisturbed; of a collective: once every rank has come
  double cpu_seconds = 0;  // processor time in it, of all threads; 0 on a GPU
  // The work it was measured with (cost.h); an instruction of another size is scaled by these.
  double flops = 0;
  double bytes = 0;       // of memory
  double link_bytes = 0;  // the buffer of a collective
  int ranks = 1;          // of a collective
  int stride = 1;         // of its group (GroupShape, cost.h)
  int64_t samples = 0;    // instructions it was measured from
  bool operator==(const MeasuredTime&) const = default;
};

struct DeviceProfile {
  std::string name;      // "h100"
  std::string describe;  // where the numbers come from, one line
  // By compute type: "fp32", "fp64", "bf16". Where they are known: "bf16 grouped", products of experts;
  // "bf16 attention" and "bf16 attention backward", attention's own kernel.
  std::map<std::string, ComputeRate> compute;
  double memory_bytes_per_second = 0;
  double host_bytes_per_second = 0;  // of copies to the host's pinned memory; 0: as in the device's
  int64_t memory_bytes = 0;          // of one device; 0: not known
  // The device memory that one rank takes beside its arena: the context with the code that is loaded into
  // it, and each communicator of several ranks; one of a single rank takes nothing. 0: not known.
  int64_t context_bytes = 0;
  int64_t communicator_bytes = 0;
  int64_t graph_pass_bytes = 0;  // likewise, for each pass of a node that CUDA graphs hold
  // Time of the host, which works beside the device: to issue a pass of a node call by call, and to launch a
  // graph. 0: not known.
  double pass_issue_seconds = 0;
  double graph_issue_seconds = 0;
  double overhead_seconds = 0;  // of every instruction that runs something, beside its work
  // Before an instruction's work: after the one before it on its stream, and after one of another stream that
  // it waited for (a thread or a device queue wakes up).
  double gap_seconds = 0;
  double wake_seconds = 0;
  // What every collective of several ranks takes beside its transfer: ranks do not arrive together, and an
  // average rank waits this long for the last.
  double skew_seconds = 0;
  LinkRates link;     // within a machine, or its NVLink domain
  LinkRates network;  // between machines, of all ranks of one together; bytes_per_second 0: there is none,
                      // link serves any number of ranks
  // Processors for one rank's streams, which share them; 0: each stream has its own engine.
  double cores = 0;
  // By how much compute slows down while a communication stream works, in [0, 1): on GPUs collectives take
  // multiprocessors and memory bandwidth.
  double compute_slowdown = 0;
  std::vector<MeasuredTime> measured;  // sorted by kind
};

// "cpu", "h100", "h200".
std::vector<std::string> PresetProfileNames();

// NotFound for another name, with those that there are.
absl::StatusOr<DeviceProfile> PresetProfile(absl::string_view name);

// The vendor's figure for a device, by the name that its driver gives it ("NVIDIA H200") and the type that it
// computes in ("bf16"); 0 where it is not known. A name is one product: an "NVIDIA H100 PCIe" is slower than
// the SXM of the presets, and is not known.
double PeakFlops(absl::string_view device, absl::string_view type);

// A profile as JSON text, and back. The keys are the fields' names; what is not given is as in DeviceProfile.
// InvalidArgument is one line that names the key and what is allowed.
std::string ProfileToJson(const DeviceProfile& profile);
absl::StatusOr<DeviceProfile> ProfileFromJson(absl::string_view text);

}  // namespace tandem::schedules
