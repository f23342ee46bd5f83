// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <google/protobuf/message_lite.h>

#include <optional>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "controller/store/sqlite.h"
#include "platform/status_macros.h"

namespace tandem::controller {

// Takes a row whose first column is a message.
struct ParseMessage {
  bool operator()(const Statement& row, google::protobuf::MessageLite& out) const {
    return out.ParseFromString(row.Bytes(0));
  }
};

// What a bound query finds, in its order. `parse(row, out)`: false if the row cannot be read, for which the
// answer is then `unreadable`. An error of the query itself comes before that.
template <typename Row, typename Parse = ParseMessage>
absl::StatusOr<std::vector<Row>> ReadRows(Statement& query, const absl::Status& unreadable,
                                          const Parse& parse = {}) {
  std::vector<Row> out;
  bool readable = true;
  while (query.Next()) {
    readable = parse(std::as_const(query), out.emplace_back()) && readable;
  }
  TANDEM_RETURN_IF_ERROR(query.Finish());
  if (!readable) {
    return unreadable;
  }
  return out;
}

// The same of a query that finds one row at most.
template <typename Row, typename Parse = ParseMessage>
absl::StatusOr<std::optional<Row>> ReadRow(Statement& query, const absl::Status& unreadable,
                                           const Parse& parse = {}) {
  TANDEM_ASSIGN_OR_RETURN(std::vector<Row> rows, ReadRows<Row>(query, unreadable, parse));
  return rows.empty() ? std::nullopt : std::optional<Row>(std::move(rows.front()));
}

// Calls take(row) with the first row that a bound query finds, if it finds one.
template <typename Take>
absl::Status TakeFirst(Statement& query, const Take& take) {
  if (query.Next()) {
    take(std::as_const(query));
  }
  return query.Finish();
}

// The number in the first column of the first row that a bound query finds; 0 if it finds none.
inline absl::StatusOr<int64_t> ReadNumber(Statement& query) {
  int64_t number = 0;
  TANDEM_RETURN_IF_ERROR(TakeFirst(query, [&](const Statement& row) { number = row.Int(0); }));
  return number;
}

}  // namespace tandem::controller
