// SPDX-License-Identifier: Apache-2.0
#include "trainer/canaries.h"

#include <algorithm>
#include <stdexcept>
#include <utility>

#include "absl/strings/str_cat.h"
#include "device/device.h"
#include "fsdp/layout.h"
#include "fsdp/unit_mesh.h"
#include "trainer/stage_memory.h"

namespace tandem::trainer {
namespace {

using schedules::Buffer;
using schedules::BufferKind;

constexpr uint8_t kCanary = 0xFE;  // -1.7e38 of fp32 and bf16, -5.5e303 of fp64; not the NaN of memory that
                                   // has not been written
constexpr int64_t kMostBytes = 4096;

// Bytes of the arena that a buffer lies in, with its elements where it is a ring.
struct Extent {
  int64_t begin = 0;
  int64_t end = 0;
  std::string name;
};

std::vector<Extent> ExtentsOf(const plan::JobPlan& plan) {
  std::vector<Extent> extents;
  for (const schedules::Program* program : plan.stage.All()) {
    for (const Buffer& buffer : program->buffers) {
      if (schedules::IsHost(buffer.kind)) {
        continue;
      }
      extents.push_back({buffer.address, buffer.address + buffer.bytes.bound, buffer.name});
      if (buffer.life == schedules::Life::kRing) {
        const int64_t second = buffer.address + schedules::RingStride(buffer);
        extents.push_back({second, second + buffer.bytes.bound, buffer.name});
      }
    }
  }
  std::sort(extents.begin(), extents.end(),
            [](const Extent& a, const Extent& b) { return a.begin < b.begin; });
  return extents;
}

}  // namespace

Canaries::Canaries(const plan::JobPlan& plan, int rank, const StageMemory& memory, device::Device& device)
    : device_(device) {
  AddPadding(plan, rank, memory);
  AddGaps(plan, memory);
  copy_ = device.ReserveHost(bytes_);
}

Canaries::~Canaries() = default;

void Canaries::Add(device::Memory memory, std::string name) {
  memory.bytes = std::min(memory.bytes, kMostBytes);
  if (memory.bytes > 0) {
    places_.push_back({.memory = memory, .at = bytes_, .name = std::move(name)});
    bytes_ += memory.bytes;
  }
}

void Canaries::AddPadding(const plan::JobPlan& plan, int rank, const StageMemory& memory) {
  for (const Buffer& buffer : plan.stage.train.buffers) {
    const bool accumulates = buffer.kind == BufferKind::kGradients;
    if (!accumulates && buffer.kind != BufferKind::kWeights && buffer.kind != BufferKind::kOptimizerState) {
      continue;
    }
    const schedules::Unit& unit = plan.outline.units[buffer.subject];
    const fsdp::UnitMesh mesh = plan::MeshOf(plan, buffer.subject, rank);
    const int arrays = buffer.kind == BufferKind::kOptimizerState ? 2 : 1;
    char* begin = memory.At(buffer).begin;
    for (int i = 0; i < arrays * static_cast<int>(unit.classes.size()); ++i) {
      const size_t of_class = i % unit.classes.size();
      const fsdp::Layout& layout = plan.layouts[buffer.subject][of_class];
      const schedules::UnitPrecision& precision = unit.classes[of_class].precision;
      const int64_t element_bytes = unit.frozen ? precision.compute : precision.main;
      const fsdp::Range range =
          accumulates ? fsdp::AccumulatorRange(layout, mesh) : fsdp::HeldRange(layout, mesh);
      for (const fsdp::Gap& gap : fsdp::GapsOf(layout, range)) {
        Add({begin + (gap.range.begin - range.begin) * element_bytes, gap.range.size() * element_bytes},
            absl::StrCat("the padding of ", buffer.name,
                         gap.behind < 0 ? "" : absl::StrCat(" behind ", layout.parameters[gap.behind].name)));
      }
      begin += range.size() * element_bytes;
    }
  }
}

void Canaries::AddGaps(const plan::JobPlan& plan, const StageMemory& memory) {
  int64_t end = 0;
  std::string last = "the arena's begin";
  const auto add = [&](int64_t next) {
    Add({memory.arena().begin + end, next - end}, absl::StrCat("the memory behind ", last));
  };
  for (const Extent& extent : ExtentsOf(plan)) {
    add(extent.begin);
    if (extent.end > end) {
      end = extent.end;
      last = extent.name;
    }
  }
  add(memory.arena().bytes);
}

void Canaries::Plant() const {
  for (const Place& place : places_) {
    device_.Fill(place.memory.begin, kCanary, place.memory.bytes);
  }
  device_.Synchronize();
}

void Canaries::Check() const {
  device_.Synchronize();
  for (const Place& place : places_) {
    device_.CopyToHost(copy_->begin() + place.at, place.memory.begin, place.memory.bytes);
  }
  device_.Synchronize();
  for (const Place& place : places_) {
    const char* const begin = copy_->begin() + place.at;
    const char* const end = begin + place.memory.bytes;
    const char* const gone =
        std::find_if(begin, end, [](char byte) { return static_cast<uint8_t>(byte) != kCanary; });
    if (gone != end) {
      throw std::logic_error(absl::StrCat("something wrote to ", place.name, ", ", gone - begin,
                                          " bytes from its start, where nothing may write"));
    }
  }
}

}  // namespace tandem::trainer
