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
// checkpoint paths absolute, relative to the working directory. Returns a violation for each of these that
// fails.
std::vector<v1::Violation> Localize(v1::JobSpec& spec);

// Fills in the preset and all defaults. Pure. Also takes specs that Validate refuses: wrong fields stay as
// they are.
v1::JobSpec Resolve(const v1::JobSpec& spec);

// The result of checking a spec as submitted.
struct Checked {
  v1::JobSpec resolved;  // the result of Resolve, even if there are violations; empty if a list is too long
  std::vector<v1::Violation> violations;  // everything that is wrong
};

// Resolves and checks a spec. Violations are in the order of the proto. Pure; CLI and controller get the same
// result. Also refuses unknown fields of the protobuf, and relative paths, which have no meaning on another
// machine (Localize makes them absolute).
Checked Check(const v1::JobSpec& spec);

// Returns only the violations of Check.
std::vector<v1::Violation> Validate(const v1::JobSpec& spec);

// Returns violations about the fields that this build does not know in a spec that another build has
// resolved; this build would otherwise ignore these fields silently.
std::vector<v1::Violation> CheckKnown(const v1::JobSpec& resolved);

// Checks the files and folders of a resolved spec, on a machine that has them. The CLI calls it if the data's
// path exists locally, the worker always.
std::vector<v1::Violation> CheckFiles(const v1::JobSpec& resolved);

// Localizes read.spec, and returns all violations that this machine can find in it: those of the reader,
// Localize, Check and, if `files` returns true for the resolved spec, CheckFiles. They are in the order of
// the file, with positions.
Checked CheckAll(ReadResult& read, const std::function<bool(const v1::JobSpec& resolved)>& files);

// Adds file, line and column to violations: the position of the field's key or, if the file does not have it,
// of the innermost block around it that the file has.
void Locate(const ReadResult& read, std::vector<v1::Violation>& violations);

// The violation as one line without a newline: "job.yaml:7:3: training.steps: 0 is not allowed; allowed: 1 to
// 1000000000; ...". Control characters in the value are escaped, and long values cut. A violation without a
// value says that the field is missing. The value of a violation without a path is a sentence about the whole
// text.
std::string ToText(const v1::Violation& violation);

// All violations, one line each.
std::string ToText(const std::vector<v1::Violation>& violations);

// SHA-256, in hexadecimal, of the spec's deterministic serialisation.
std::string Digest(const v1::JobSpec& spec);

}  // namespace tandem::jobspec
