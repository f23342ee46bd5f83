#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "schedules_v1/meaning.h"
#include "schedules_v1/outline.h"
#include "schedules_v1/placement.h"
#include "schedules_v1/program.h"

namespace tandem::schedules_v1 {

// Runs programs on hashes instead of tensors, one rank or several together, in any order that stream order
// and waits allow. It is the second opinion on the checker, and on every builder and pass: it knows what
// instructions do, but no rule of what a program may look like, and shares no code with the checker.
//
// An instruction starts, and later finishes; a collective finishes once every rank has started it. What two
// instructions touch at the same time, one of them writing, is torn: the reader's result, or both writers',
// is a hash that nothing else has. Reading memory that was released, overwritten by another's block or never
// written ends the run, as does an operand that is not there. Programs of a sequence follow each other with
// a seam at which every stream joins every other.
//
// Coarser than the hardware in one way: a slot is one thing, so writing two parts of it at once is a tear.

struct RunResult {
  enum class Kind : uint8_t {
    kEnded,
    kStandsStill,  // nothing is ready
    kFault,        // something released or never written was touched
  };
  Kind kind = Kind::kEnded;
  std::string what;             // of a run that did not end
  std::vector<Ending> endings;  // by rank, of one that did
};

// What is run.
struct Interpreted {
  const Outline& outline;
  std::vector<std::vector<const Program*>> programs;      // by rank, in sequence
  std::vector<std::vector<const Placement*>> placements;  // of each of these
  std::vector<std::vector<bool>> contributed;             // unit → part: some node writes its gradient
};

class Interpreter {
 public:
  // One sequence of programs per rank; every rank is in every communicator. All of it must outlive the
  // interpreter.
  Interpreter(const Outline& outline, std::vector<std::vector<const Program*>> ranks);
  Interpreter(const Interpreter&) = delete;
  Interpreter& operator=(const Interpreter&) = delete;

  // The lowest instruction that is ready, again and again.
  RunResult RunInIssueOrder() const;

  // Any that is ready, by seed.
  RunResult RunAnyOrder(uint64_t seed) const;

  // Two instructions that nothing orders, in the first run of their program on a rank.
  struct Pair {
    int rank = 0;
    int position = 0;  // of the program in the rank's sequence
    UnorderedPair pair;
  };
  std::vector<Pair> UnorderedPairs() const;

  // Directed: both are held back until nothing else is ready, then both start before either finishes.
  RunResult RunAtOnce(const Pair& pair, uint64_t seed) const;

  // Directed: the earlier one is held back until the later one has finished, where that is legal.
  RunResult RunReversed(const Pair& pair, uint64_t seed) const;

 private:
  Interpreted interpreted_;
  std::vector<std::unique_ptr<const Placement>> owned_;
};

// What a program does wrong in some run: how the first harmful run went, or nothing if all runs end as
// `expected` says. Tries issue order, both orders of every unordered pair, and `num_seeds` random orders from
// `seed` on.
std::optional<std::string> FindHarm(const Interpreter& interpreter, const std::vector<Ending>& expected,
                                    uint64_t seed, int num_seeds);

}  // namespace tandem::schedules_v1
