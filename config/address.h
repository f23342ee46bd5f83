// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <string_view>

namespace tandem::config {

// What a flag takes as an address: "HOST:PORT", where HOST is a name, an IPv4 address, or an IPv6 address in
// brackets.
struct AddressForm {
  bool socket = false;      // unix:PATH too
  bool every_host = false;  // :PORT too
  bool ipv6 = true;
  int least_port = 1;          // 0: any port may be asked for
  const char* word = nullptr;  // this word too, such as "off"
  const char* example = "127.0.0.1:7471";
};

// "": `text` has the form. Else one line: what is wrong with it, and what is allowed. Pure: no name is
// resolved, and nothing is opened.
std::string WhyNotAddress(std::string_view text, const AddressForm& form);

// The same of the path of a socket, without "unix:".
std::string WhyNotSocketPath(std::string_view path);

}  // namespace tandem::config
