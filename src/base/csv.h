// A table as spreadsheets write it: comma-separated, quoted where needed (RFC 4180).
#pragma once

#include <cstddef>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace echelon {

/// A line of fields, or several where a quoted field has line breaks.
struct CsvRecord {
  std::size_t line = 0;  // where it starts, from 1
  std::vector<std::string> fields = {};
};

/// All that are not blank, a header too. A byte order mark is skipped. Throws Error, with `name`, for a quote that is
/// never closed.
[[nodiscard]] std::vector<CsvRecord> csv_records(std::string_view text, const std::string& name);

/// One record below the header: the fields by the names of their columns. Columns that the record leaves out are empty.
struct CsvRow {
  std::size_t line = 0;            // of the record
  std::size_t surplus_fields = 0;  // after the last column of the header
  std::map<std::string, std::string, std::less<>> fields;

  /// Without blanks around it; empty if there is no such column.
  [[nodiscard]] std::string at(std::string_view column) const;
};

/// Throws Error for what csv_records refuses, for two columns of one name and for a column of `needed` that is missing.
[[nodiscard]] std::vector<CsvRow> parse_csv(std::string_view text, const std::string& name,
                                            std::span<const std::string_view> needed = {});
[[nodiscard]] std::vector<CsvRow> read_csv(const std::string& path, std::span<const std::string_view> needed = {});

}  // namespace echelon
