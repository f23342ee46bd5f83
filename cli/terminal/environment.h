// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

namespace tandem::cli {

// The environment variables that `tandem` honours, read once in main; empty if unset.
struct Environment {
  std::string tandem_addr;     // TANDEM_ADDR
  std::string tandem_context;  // TANDEM_CONTEXT
  std::string tandem_tls_ca;   // TANDEM_TLS_CA, and so on
  std::string tandem_tls_cert;
  std::string tandem_tls_key;
  std::string tandem_tls_server_name;
  std::string home;             // HOME
  std::string xdg_config_home;  // XDG_CONFIG_HOME
  std::string xdg_state_home;   // XDG_STATE_HOME
  std::string term;             // TERM
  std::string locale;           // the first that is set of LC_ALL, LC_CTYPE, LANG
  bool no_color = false;        // NO_COLOR is set and not empty
};

}  // namespace tandem::cli
