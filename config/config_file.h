// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace tandem::config {

// An entry of a config file, which stands for a flag: `slots: 4` for --slots 4, and `listen: [127.0.0.1:7471,
// "unix:/run/tandem/socket"]` for --listen twice.
struct Setting {
  std::string key;
  std::vector<std::string> values;  // as written, but without quotes; nothing else is interpreted
  bool list = false;
  int line = 0;  // of the key, from 1
  int column = 0;
};

// An error in a config file, with its position.
struct Problem {
  int line = 0;  // 0: the whole file is wrong
  int column = 0;
  std::string text;  // "state: it is given twice, first on line 1"

  // "controller.yaml:3:1: state: it is given twice, first on line 1".
  std::string In(const std::string& file) const;
};

struct ConfigFile {
  std::vector<Setting> settings;  // in file order
  std::vector<Problem> problems;
};

// Parses the YAML text of a config file. Pure. Finds all problems at once; a key with a problem is left out
// of the settings.
ConfigFile ReadConfigText(std::string_view text);

// A problem at the position of a setting; `sentence` says what is wrong.
Problem ProblemWith(const Setting& setting, const std::string& sentence);

}  // namespace tandem::config
