// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>

namespace tandem::plan {

// Quantities as a plan prints them.

std::string GroupedText(int64_t number);           // "1,234,567"
std::string SizeText(int64_t bytes);               // "1.50 GiB"
std::string CountText(double number);              // "1.23 G"; powers of 1000
std::string DurationText(int64_t nanoseconds);     // "1.23 ms", three digits: ns, us, ms, s
std::string ShareText(double part, double whole);  // "12 %", "3.4 %" below ten; "0 %" if `whole` is 0
std::string DurationShareText(int64_t nanoseconds, int64_t whole);  // "1.23 ms (12 %)"

// Appends one line of a section: "  key          value".
void AppendRow(std::string& text, const std::string& key, const std::string& value);

}  // namespace tandem::plan
