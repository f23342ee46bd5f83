#pragma once

#include "absl/status/status.h"
#include "absl/strings/string_view.h"

namespace tandem::schedules_v1 {

// Rules of the checker that also refuse programs which would compute the right thing. They keep programs
// cheap, readable and close to what builders mean: what breaks one of them is a mistake, if a harmless one.
// All other refusals say that some run goes wrong. A refusal by such a rule ends in "[hygiene: NAME]".

namespace hygiene {

// A wait for what the instruction knows to be done without it: its own stream's, or implied by others.
inline constexpr absl::string_view kKnownWait = "known wait";
// A value, gradient or gather that is open at the end of the program; a gather that is still open when its
// unit is gathered again, when another unit takes its slot, or when its weights change.
inline constexpr absl::string_view kNeverClosed = "never closed";
// A value that is written again: it has one producer.
inline constexpr absl::string_view kSecondWrite = "second write";
// A Release on another stream than that of the first write, where it costs no wait.
inline constexpr absl::string_view kReleaseStream = "release stream";
// A slot that stands in another place than the instruction's list of units says.
inline constexpr absl::string_view kSlotOrder = "slot order";
// A Reshard of another unit than its slot holds, or a microbatch of an Unshard, Reshard or ReduceGradients
// that the program does not have or whose gradient is not what the slot holds.
inline constexpr absl::string_view kLabel = "label";
// A gather after the unit's weights have changed, of which no use can follow in the program.
inline constexpr absl::string_view kGatherAfterStep = "gather after step";
// A race of a gather that nothing uses before the unit is gathered again: it spoils what nobody reads.
inline constexpr absl::string_view kUnusedGather = "unused gather";
// A communicator that is not that of the opcode, or on an instruction that does not communicate.
inline constexpr absl::string_view kCommunicator = "communicator";
// A communicator that two streams use, one after the other.
inline constexpr absl::string_view kCommunicatorStream = "communicator stream";

}  // namespace hygiene

// Appends the tag.
absl::Status RefusedByHygiene(absl::string_view rule, absl::string_view message);

// NAME, or "" where the refusal is by another rule. A view of the status.
absl::string_view HygieneRule(const absl::Status& status);

}  // namespace tandem::schedules_v1
