#pragma once

#include <string>

#include "schedules_v1/outline.h"
#include "schedules_v1/program.h"

namespace tandem::schedules_v1 {

// A program with one instruction elsewhere, twice or gone; the waits follow.

// The first instruction, from `from` on, of that text form; fails the test, and returns 0, where there is
// none.
int FindInstruction(const Outline& outline, const Program& program, const std::string& text, int from = 0);

// Instruction i leaves; what waited for it waits no more.
Program Without(const Program& program, int i);

// Instruction i moves to directly before instruction j (j == size: to the end). Waits follow what they wait
// for; those that would no longer point back are dropped.
Program Moved(const Program& program, int i, int j);

// A copy of instruction i comes directly before instruction j > i; what waited for i still does.
Program Doubled(const Program& program, int i, int j);

}  // namespace tandem::schedules_v1
