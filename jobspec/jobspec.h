// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "tandem/v1/job.pb.h"

namespace tandem::jobspec {

// A spec as read, and the position of each field in its file, for the messages of later checks.
struct ReadResult {
  v1::JobSpec spec;                       // valid if `violations` is empty
  std::vector<v1::Violation> violations;  // all, in file order
  std::string file;
  // Path ("training.steps") → line and column (from 1) of its key.
  std::vector<std::pair<std::string, std::pair<int, int>>> positions;
  // Paths whose value could not be read, for which there are no further violations; "" is the whole text.
  std::vector<std::string> unusable;
};

// Reads YAML or JSON, which is read as YAML. `file` is its name in messages; may be empty.
ReadResult ReadText(std::string_view text, const std::string& file);

// Reads a regular file or a pipe ("-" is standard input). If it cannot be read, that is a violation too.
ReadResult ReadFile(const std::string& path);

// For the CLI only: replaces model.hugging_face by the fields of that config.json, and makes data and
// checkpoint paths absolute, relative to the working directory. Returns violations for what fails.
std::vector<v1::Violation> Localize(v1::JobSpec& spec);

// Fills in every default and preset. Pure, and defined for every spec: a field that Validate refuses stays as
// it is.
v1::JobSpec Resolve(const v1::JobSpec& spec);

// The result of checking a spec as submitted.
struct Checked {
  v1::JobSpec resolved;  // result of Resolve, also if something is wrong; empty if a list is too long
  std::vector<v1::Violation> violations;  // everything that is wrong
};

// Resolves and checks a spec. Violations are in the order of the proto. Pure, and the same in CLI and
// controller. Also refuses unknown binary fields, and relative paths, which mean nothing on another machine
// (Localize makes them absolute).
Checked Check(const v1::JobSpec& spec);

// Returns only the violations of Check.
std::vector<v1::Violation> Validate(const v1::JobSpec& spec);

// Refuses what this build does not know in a spec that another build has resolved, and which it would
// otherwise silently ignore.
std::vector<v1::Violation> CheckKnown(const v1::JobSpec& resolved);

// Checks data and checkpoint directory, which is possible only on a machine that has the files. `resolved` is
// a resolved spec. The CLI calls it if the path exists locally, the worker always.
std::vector<v1::Violation> CheckFiles(const v1::JobSpec& resolved);

// All violations that this machine can find in a file, at once, in file order and with positions: those of
// the reader, Localize, Check and, if `files` returns true for the resolved spec, CheckFiles. Leaves
// read.spec localized.
Checked CheckAll(ReadResult& read, const std::function<bool(const v1::JobSpec& resolved)>& files);

// Adds file, line and column to violations: those of the path's key, or of the innermost enclosing block that
// the file has.
void Locate(const ReadResult& read, std::vector<v1::Violation>& violations);

// The violation as one line without a newline: "job.yaml:7:3: training.steps: 0 is not allowed; allowed: 1 to
// 1000000000; ...". Control characters in the value are escaped, and long values cut. A violation without a
// value concerns something that is missing. One without a path concerns the whole text, and its value is the
// sentence.
std::string ToText(const v1::Violation& violation);

// All violations, one line each.
std::string ToText(const std::vector<v1::Violation>& violations);

// SHA-256, in hexadecimal, of the deterministic serialisation.
std::string Digest(const v1::JobSpec& spec);

}  // namespace tandem::jobspec
