// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "tandem/v1/job.pb.h"

namespace tandem::jobspec {

// A spec as read, and where each field stood in its file (for the messages of later checks).
struct ReadResult {
  v1::JobSpec spec;                       // meaningful where violations is empty
  std::vector<v1::Violation> violations;  // every one, in file order
  std::string file;
  // Path ("training.steps") → line, column (from 1) of its key.
  std::vector<std::pair<std::string, std::pair<int, int>>> positions;
  // Paths whose value could not be read, so nothing else is said about them; "" is the whole text.
  std::vector<std::string> unusable;
};

// Reads YAML or JSON (JSON is YAML here). `file` names it in messages; empty for none.
ReadResult ReadText(std::string_view text, const std::string& file);

// Reads a regular file or a pipe ("-": standard input). What cannot be read is a violation too.
ReadResult ReadFile(const std::string& path);

// CLI only: replaces model.hugging_face by the fields of that config.json, and makes data and checkpoint
// paths absolute (relative to the working directory). Violations where it cannot.
std::vector<v1::Violation> Localize(v1::JobSpec& spec);

// Fills every default and preset. Pure; total: a field that Validate will refuse is left as it is.
v1::JobSpec Resolve(const v1::JobSpec& spec);

// What a spec as submitted comes to.
struct Checked {
  v1::JobSpec resolved;  // Resolve of it, also where something is wrong; empty where a list is too long
  std::vector<v1::Violation> violations;  // everything that is wrong
};

// Violations are in the order of the proto. Pure and identical in CLI and controller. Also refuses unknown
// binary fields, and relative paths, which mean nothing on another machine (Localize makes them absolute).
Checked Check(const v1::JobSpec& spec);

// The violations alone.
std::vector<v1::Violation> Validate(const v1::JobSpec& spec);

// What this build does not know of a spec that another build has resolved, and would leave out in silence.
std::vector<v1::Violation> CheckKnown(const v1::JobSpec& resolved);

// Data, checkpoint directory: what only the machine that has the files can say. `spec` is resolved.
// The CLI calls it where the path exists locally, the worker always.
std::vector<v1::Violation> CheckFiles(const v1::JobSpec& resolved);

// All that this machine can say about a file, at once and in file order: what the reader, Localize, Check
// and, where `files` asks for it of the resolved spec, CheckFiles find, located. Leaves read.spec localized.
Checked CheckAll(ReadResult& read, const std::function<bool(const v1::JobSpec& resolved)>& files);

// Adds file, line and column to violations: of the path's key, or of the innermost block around it that the
// file has.
void Locate(const ReadResult& read, std::vector<v1::Violation>& violations);

// "job.yaml:7:3: training.steps: 0 is not allowed; allowed: 1 to 1000000000; ..." One line, no newline;
// control characters of the value are escaped, long values cut. A violation without a value is of something
// missing; one without a path is of the whole text, and its value is the sentence.
std::string ToText(const v1::Violation& violation);

// All of them, a line each.
std::string ToText(const std::vector<v1::Violation>& violations);

// SHA-256, hex, of the deterministic serialisation.
std::string Digest(const v1::JobSpec& spec);

}  // namespace tandem::jobspec
