#include "base/csv.h"

#include "base/error.h"
#include "base/text/similar.h"
#include "base/text_file.h"

#include <algorithm>
#include <optional>
#include <utility>

namespace echelon {
namespace {

std::string_view stripped(std::string_view text) {
  constexpr std::string_view blanks = " \t\r";
  const std::size_t first = text.find_first_not_of(blanks);
  return first == std::string_view::npos ? std::string_view()
                                         : text.substr(first, text.find_last_not_of(blanks) - first + 1);
}

class CsvParser {
 public:
  CsvParser(std::string_view text, const std::string& name) : text_(text), name_(name) {
    if (text_.starts_with("\xEF\xBB\xBF")) text_.remove_prefix(3);
  }

  /// The next record that is not a blank line; false at the end.
  bool next(CsvRecord& record) {
    do {
      if (position_ >= text_.size()) return false;
      record = {line_, {}};
      while (true) {
        record.fields.push_back(field());
        if (position_ >= text_.size() || text_[position_] != ',') break;
        ++position_;
      }
      end_line();
    } while (record.fields.size() == 1 && stripped(record.fields.front()).empty());
    return true;
  }

 private:
  std::string field() {
    std::string value;
    if (position_ < text_.size() && text_[position_] == '"') value = quoted();
    while (position_ < text_.size() && text_[position_] != ',' && text_[position_] != '\n' && text_[position_] != '\r')
      value += text_[position_++];
    return value;
  }

  std::string quoted() {
    const std::size_t begun = line_;
    std::string value;
    for (++position_; position_ < text_.size(); ++position_) {
      const char c = text_[position_];
      if (c == '\n') ++line_;
      if (c != '"') {
        value += c;
      } else if (position_ + 1 < text_.size() && text_[position_ + 1] == '"') {
        value += text_[position_++];
      } else {
        ++position_;
        return value;
      }
    }
    throw Error(fmt::format("{}:{}: a quote is opened and never closed", name_, begun));
  }

  void end_line() {
    if (position_ < text_.size() && text_[position_] == '\r') ++position_;
    if (position_ < text_.size() && text_[position_] == '\n') ++position_;
    ++line_;
  }

  std::string_view text_;
  const std::string& name_;
  std::size_t position_ = 0, line_ = 1;
};

void check_header(const std::vector<std::string>& fields, std::span<const std::string_view> needed,
                  const std::string& name) {
  std::vector<std::string_view> columns;
  for (const std::string& field : fields) {
    const std::string_view column = stripped(field);
    require(column.empty() || std::find(columns.begin(), columns.end(), column) == columns.end(),
            "{} has two columns '{}'; omit one of them", name, column);
    columns.push_back(column);
  }
  for (const std::string_view column : needed) {
    if (std::find(columns.begin(), columns.end(), column) != columns.end()) continue;
    std::vector<std::string_view> others = columns;  // that are not needed themselves
    std::erase_if(others, [&](auto each) { return std::find(needed.begin(), needed.end(), each) != needed.end(); });
    const std::string written = similar(column, others);
    throw Error(fmt::format("the first line of {} has no column '{}'{}", name, column,
                            written.empty() ? "" : fmt::format("; did you mean '{}'?", written)));
  }
}

}  // namespace

std::vector<CsvRecord> csv_records(std::string_view text, const std::string& name) {
  CsvParser parser(text, name);
  std::vector<CsvRecord> records;
  for (CsvRecord record; parser.next(record);) records.push_back(std::move(record));
  return records;
}

std::string CsvRow::at(std::string_view column) const {
  const auto found = fields.find(column);
  return found == fields.end() ? std::string() : std::string(stripped(found->second));
}

std::vector<CsvRow> parse_csv(std::string_view text, const std::string& name,
                              std::span<const std::string_view> needed) {
  const auto is_control = [](char c) { return c >= 0 && c < ' ' && c != '\t' && c != '\r' && c != '\n'; };
  const auto control = std::ranges::find_if(text, is_control);
  require(control == text.end(), "{} is no table of text: it contains a byte of value {}", name,
          static_cast<int>(control == text.end() ? 0 : *control));
  const std::vector<CsvRecord> records = csv_records(text, name);
  require(!records.empty(), "{} has no header with the names of its columns", name);
  const std::vector<std::string>& columns = records.front().fields;
  check_header(columns, needed, name);
  std::vector<CsvRow> rows;
  for (const CsvRecord& record : std::span(records).subspan(1)) {
    const std::size_t num_named = std::min(record.fields.size(), columns.size());
    CsvRow& row = rows.emplace_back(CsvRow{record.line, record.fields.size() - num_named, {}});
    for (std::size_t i = 0; i < num_named; ++i) row.fields[std::string(stripped(columns[i]))] = record.fields[i];
  }
  return rows;
}

std::vector<CsvRow> read_csv(const std::string& path, std::span<const std::string_view> needed) {
  const std::optional<std::string> text = read_text_file(path);
  require(text.has_value(), "'{}' cannot be read; check the path", path);
  return parse_csv(*text, path, needed);
}

}  // namespace echelon
