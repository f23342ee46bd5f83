// SPDX-License-Identifier: Apache-2.0
// Writes docs/opcodes.md, the table of the step program's opcodes, from their signatures, or compares the
// page with them.
//
//   opcode_table PAGE [--update]
#include <fstream>
#include <iostream>
#include <iterator>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "schedules/program/signature.h"

namespace tandem::schedules {
namespace {

constexpr char kPreamble[] =
    R"(# Opcodes of the step program

<!-- tests/docs/opcode_table.cc writes this page from schedules/program/signature.cc, and a test compares them. After a
     change, `cmake --build build/release --target update_opcode_table` writes it again. -->

An [instruction](step_program.md) has these operands, in this order. It accesses no other memory. *former*: the operand
is the element of a ring that the former run wrote. *each*: as many as the target has, or none; those of a node's pass are
the lists of its declaration (`schedules/program/outline.h`, `Access`). *either*: the instruction has exactly one of these.

| opcode | target | of a microbatch | reads | writes | adds to |
|---|---|---|---|---|---|
)";

std::string Cell(Opcode opcode, Mode mode) {
  std::vector<std::string> items;
  for (const OperandRow& row : SignatureOf(opcode)) {
    if (!Allows(row.modes, static_cast<int>(mode))) {
      continue;
    }
    const bool later = mode == Mode::kAdds && Allows(row.modes, static_cast<int>(Mode::kWrites));
    std::string item = absl::StrCat(row.presence == Presence::kEach    ? "each "
                                    : row.presence == Presence::kOneOf ? "either "
                                                                       : "",
                                    ToText(row.role), row.former ? " (former)" : "");
    absl::StrAppend(&item, *row.when == '\0' ? "" : absl::StrCat(", ", row.when),
                    later ? ", if an earlier instruction wrote it" : "");
    items.push_back(item);
  }
  return absl::StrJoin(items, "; ");
}

std::string Page() {
  const char* targets[] = {"", "node", "unit", "value"};
  std::string page = kPreamble;
  for (int i = 0; i < kNumOpcodes; ++i) {
    const auto opcode = static_cast<Opcode>(i);
    const OpcodeInfo& info = InfoOf(opcode);
    absl::StrAppend(&page, "| `", info.name, "` | ", targets[static_cast<int>(info.target)], " | ",
                    info.of_microbatch ? "yes" : "", " | ", Cell(opcode, Mode::kReads), " | ",
                    Cell(opcode, Mode::kWrites), " | ", Cell(opcode, Mode::kAdds), " |\n");
  }
  return page;
}

int Main(int argc, char** argv) {
  if (argc < 2 || argc > 3 || (argc == 3 && std::string(argv[2]) != "--update")) {
    std::cerr << "usage: opcode_table PAGE [--update]\n";
    return 2;
  }
  if (argc == 3) {
    std::ofstream(argv[1]) << Page();
    return 0;
  }
  std::ifstream stream(argv[1]);
  const std::string written((std::istreambuf_iterator<char>(stream)), std::istreambuf_iterator<char>());
  if (written != Page()) {
    std::cerr << argv[1] << " is not what the signatures say: build the target update_opcode_table\n";
    return 1;
  }
  return 0;
}

}  // namespace
}  // namespace tandem::schedules

int main(int argc, char** argv) { return tandem::schedules::Main(argc, argv); }
