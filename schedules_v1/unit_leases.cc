#include "schedules_v1/unit_leases.h"

#include <string>

#include "absl/strings/str_cat.h"
#include "schedules_v1/access.h"
#include "schedules_v1/fold_order.h"
#include "schedules_v1/hygiene.h"
#include "schedules_v1/text.h"

namespace tandem::schedules_v1 {
namespace {

std::vector<std::vector<int>> Unheld(const std::vector<int>& counts) {
  std::vector<std::vector<int>> holders;
  for (const int count : counts) {
    holders.emplace_back(count, -1);
  }
  return holders;
}

}  // namespace

UnitLeases::UnitLeases(const Outline& outline, const Program& program, const Refusal& refuse)
    : outline_(outline),
      program_(program),
      refuse_(refuse),
      parameters_(outline.units.size()),
      gradients_(outline.units.size()),
      holders_{Unheld(program.parameter_slots), Unheld(program.gradient_slots)},
      reductions_(outline.units.size() * program.num_microbatches, -1),
      newest_(outline.units.size(), -1) {
  for (size_t unit = 0; unit < outline.units.size(); ++unit) {
    const size_t parts = outline.units[unit].parts.size();
    expected_.emplace_back(parts, 0);
    gradients_[unit].writes.assign(parts, 0);
    gradients_[unit].written.assign(parts, -1);
  }
  for (const Node& node : outline.nodes) {
    for (const UnitPart& part : node.backward.parameter_gradients) {
      ++expected_[part.unit][part.part];
    }
  }
}

int& UnitLeases::Holder(const SlotUse& slot) {
  return holders_[static_cast<int>(slot.role)][slot.size_class][slot.index];
}

absl::Status UnitLeases::UseParameters(int i, const SlotUse& slot) {
  const Lease& lease = parameters_[slot.unit];
  const std::string use = absl::StrCat("uses ", outline_.units[slot.unit].name, " in slot ", ToText(slot));
  if (lease.opened < 0) {
    return lease.closed < 0 ? refuse_.Of(i, absl::StrCat(use, ", where nothing has gathered it"))
                            : refuse_.Of(i, absl::StrCat(use, " after"), lease.closed);
  }
  if (!(lease.slot == slot)) {
    return refuse_.Of(i, absl::StrCat(use, ", but"), lease.opened,
                      absl::StrCat(" gathered it in ", ToText(lease.slot)));
  }
  return absl::OkStatus();
}

absl::Status UnitLeases::Unshard(int i) {
  const Instruction& instruction = program_.instructions[i];
  const SlotUse& slot = instruction.slots.front();
  Lease& lease = parameters_[instruction.target];
  if (lease.opened >= 0) {
    return refuse_.ByHygiene(hygiene::kNeverClosed, i, "gathers a unit that is still gathered by",
                             lease.opened);
  }
  if (const int holder = Holder(slot); holder >= 0) {
    return refuse_.ByHygiene(hygiene::kNeverClosed, i,
                             absl::StrCat("gathers into ", ToText(slot), ", which is still in use since"),
                             parameters_[holder].opened);
  }
  Holder(slot) = instruction.target;
  lease.opened = i;
  lease.slot = slot;
  return absl::OkStatus();
}

absl::Status UnitLeases::Reshard(int i) {
  const Instruction& instruction = program_.instructions[i];
  const SlotUse& slot = instruction.slots.front();
  if (const int holder = Holder(slot); holder >= 0 && holder != instruction.target) {
    return refuse_.ByHygiene(hygiene::kLabel, i,
                             absl::StrCat("frees slot ", ToText(slot), ", but it holds what"),
                             parameters_[holder].opened, " gathered");
  }
  if (absl::Status status = UseParameters(i, slot); !status.ok()) {
    return status;
  }
  Lease& lease = parameters_[instruction.target];
  Holder(lease.slot) = -1;
  lease.opened = -1;
  lease.closed = i;
  return absl::OkStatus();
}

absl::Status UnitLeases::OpenGradients(int i, const SlotUse& slot) {
  const int microbatch = program_.instructions[i].microbatch;
  const std::string& name = outline_.units[slot.unit].name;
  Lease& lease = gradients_[slot.unit];
  if (const int reduced = Reduction(slot.unit, microbatch); reduced >= 0) {
    return refuse_.Of(i, absl::StrCat("contributes to the gradient of ", name, " after"), reduced);
  }
  if (lease.opened < 0) {
    if (const int holder = Holder(slot); holder >= 0) {
      return refuse_.Of(i,
                        absl::StrCat("collects gradients in ", ToText(slot), ", which is still in use since"),
                        gradients_[holder].opened);
    }
    Holder(slot) = slot.unit;
    lease.opened = i;
    lease.microbatch = microbatch;
    lease.slot = slot;
    return absl::OkStatus();
  }
  if (!(lease.slot == slot)) {
    return refuse_.Of(i, absl::StrCat("collects the gradient of ", name, " in ", ToText(slot), ", but"),
                      lease.opened, absl::StrCat(" collects it in ", ToText(lease.slot)));
  }
  if (lease.microbatch != microbatch) {
    return refuse_.Of(i, absl::StrCat("contributes to the gradient of ", name, " before the reduction of"),
                      lease.opened);
  }
  return absl::OkStatus();
}

absl::Status UnitLeases::WritePart(int i, UnitPart part, bool add) {
  Lease& lease = gradients_[part.unit];
  int& writes = lease.writes[part.part];
  const Unit& unit = outline_.units[part.unit];
  const std::string name = absl::StrCat(unit.name, ".", unit.parts[part.part]);
  if (add != (writes > 0)) {
    return refuse_.Of(i,
                      absl::StrCat(add ? "adds to" : "overwrites", " the gradient of ", name,
                                   add ? ", which nothing has written since the lease began at"
                                       : ", which was written since the lease began at"),
                      lease.opened);
  }
  if (absl::Status status = CheckFoldOrder(program_, refuse_, i, lease.written[part.part], name);
      !status.ok()) {
    return status;
  }
  ++writes;
  lease.written[part.part] = i;
  return absl::OkStatus();
}

int UnitLeases::LaterContribution(UnitPart part, int microbatch, int after) const {
  for (int i = after + 1; i < static_cast<int>(program_.instructions.size()); ++i) {
    const Instruction& instruction = program_.instructions[i];
    if (TargetsNode(instruction.opcode) && instruction.microbatch == microbatch) {
      for (const UnitPart& other :
           AccessOf(outline_.nodes[instruction.target], instruction.opcode).parameter_gradients) {
        if (other == part) {
          return i;
        }
      }
    }
  }
  return -1;
}

absl::Status UnitLeases::ReduceGradients(int i) {
  const Instruction& instruction = program_.instructions[i];
  const UnitId unit = instruction.target;
  Lease& lease = gradients_[unit];
  int& reduction = reductions_[unit * program_.num_microbatches + instruction.microbatch];
  if (lease.opened < 0) {
    return reduction >= 0 ? refuse_.Of(i, "reduces a second time, after", reduction)
                          : refuse_.Of(i, "reduces what nothing has contributed to");
  }
  if (!(lease.slot == instruction.slots.front())) {
    return refuse_.Of(i,
                      absl::StrCat("reduces slot ", ToText(instruction.slots.front()),
                                   ", but the gradient is in ", ToText(lease.slot), " since"),
                      lease.opened);
  }
  if (lease.microbatch != instruction.microbatch) {
    return refuse_.ByHygiene(
        hygiene::kLabel, i,
        absl::StrCat("says another microbatch than ", lease.microbatch, ", which contributes since"),
        lease.opened);
  }
  if (absl::Status status = CheckContributions(i); !status.ok()) {
    return status;
  }
  if (absl::Status status = CheckShard(i); !status.ok()) {
    return status;
  }
  reduction = i;
  newest_[unit] = instruction.microbatch;
  Holder(lease.slot) = -1;
  lease.opened = -1;
  lease.closed = i;
  lease.writes.assign(lease.writes.size(), 0);
  lease.written.assign(lease.written.size(), -1);
  return absl::OkStatus();
}

// Reduction i has all that it reduces.
absl::Status UnitLeases::CheckContributions(int i) const {
  const UnitId unit = program_.instructions[i].target;
  const Lease& lease = gradients_[unit];
  for (int part = 0; part < static_cast<int>(lease.writes.size()); ++part) {
    if (lease.writes[part] != expected_[unit][part]) {
      const int later = LaterContribution({unit, part}, program_.instructions[i].microbatch, i);
      return refuse_.Of(i,
                        absl::StrCat("reduces with ", lease.writes[part], " of ", expected_[unit][part],
                                     " contributions to ", outline_.units[unit].name, ".",
                                     outline_.units[unit].parts[part], later >= 0 ? ", before" : ""),
                        later);
    }
  }
  return absl::OkStatus();
}

// The microbatches come to the shard in their order; the first of the step overwrites it.
absl::Status UnitLeases::CheckShard(int i) const {
  const Instruction& instruction = program_.instructions[i];
  const int newest = newest_[instruction.target];
  const int former = newest < 0 ? -1 : Reduction(instruction.target, newest);
  if (newest > instruction.microbatch) {
    return refuse_.Of(i, "comes after", former, "; contributions are added in the order of the microbatches");
  }
  const bool add = instruction.add_parameter_gradients.front();
  if (add != (former >= 0)) {
    return add ? refuse_.Of(i, "adds to a gradient shard that nothing has written in this step")
               : refuse_.Of(i, "overwrites the gradient shard of", former);
  }
  return absl::OkStatus();
}

absl::Status UnitLeases::End(UnitId unit) const {
  if (parameters_[unit].opened >= 0) {
    return refuse_.ByHygiene(hygiene::kNeverClosed, parameters_[unit].opened,
                             "gathers a unit that is never resharded");
  }
  if (gradients_[unit].opened >= 0) {
    return refuse_.Of(gradients_[unit].opened, "contributes to a gradient that is never reduced");
  }
  return absl::OkStatus();
}

}  // namespace tandem::schedules_v1
