// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace tandem::config {

// A line of a config file: what a flag would be given. `slots: 4` is --slots 4, and
// `listen: [127.0.0.1:7471, "unix:/run/tandem/socket"]` is --listen twice.
struct Setting {
  std::string key;
  std::vector<std::string> values;  // as written, quotes removed; nothing else is interpreted
  bool list = false;
  int line = 0;  // of the key, from 1
  int column = 0;
};

// What is wrong with a file, and where.
struct Problem {
  int line = 0;  // 0: of the whole file
  int column = 0;
  std::string text;  // "state: it is given twice, first on line 1"

  // "controller.yaml:3:1: state: it is given twice, first on line 1".
  std::string In(const std::string& file) const;
};

struct ConfigFile {
  std::vector<Setting> settings;  // in file order
  std::vector<Problem> problems;
};

// The YAML text of a config file. Pure. All problems are found at once, and a key with one is not among the
// settings.
ConfigFile ReadConfigText(std::string_view text);

// What is wrong with the line of a setting.
Problem ProblemWith(const Setting& setting, const std::string& sentence);

}  // namespace tandem::config
