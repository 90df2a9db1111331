#include "base/bounded_json.h"

#include "base/error.h"
#include "base/text/printable.h"

#include <algorithm>
#include <vector>

namespace echelon {
namespace {

/// What the parser says about a text.
struct Complaint {
  std::size_t position = 0;  // bytes that it has read, with the wrong one
  std::string token;         // that it read last
  std::string what;
};

/// Sees every value of a text and keeps none.
class FaultFinder : public nlohmann::json_sax<nlohmann::json> {
 public:
  bool null() override { return true; }
  bool boolean(bool /*value*/) override { return true; }
  bool number_integer(number_integer_t /*value*/) override { return true; }
  bool number_unsigned(number_unsigned_t /*value*/) override { return true; }
  bool number_float(number_float_t /*value*/, const string_t& /*text*/) override { return true; }
  bool string(string_t& /*value*/) override { return true; }
  bool binary(binary_t& /*value*/) override { return true; }
  bool key(string_t& /*name*/) override { return true; }
  bool start_object(std::size_t /*size*/) override { return true; }
  bool start_array(std::size_t /*size*/) override { return true; }
  bool end_object() override { return true; }
  bool end_array() override { return true; }
  bool parse_error(std::size_t position, const std::string& token, const nlohmann::json::exception& error) override {
    complaint_ = {position, token, error.what()};
    return false;
  }
  [[nodiscard]] const Complaint& complaint() const { return complaint_; }

 private:
  Complaint complaint_;
};

class BoundsCheck final : public FaultFinder {
 public:
  BoundsCheck(std::size_t num_bytes, const JsonBounds& bounds) : num_bytes_(num_bytes), bounds_(bounds) {}

  bool key(string_t& /*name*/) override {
    require(++num_keys_.back() <= bounds_.most_keys, "an object of its JSON has more than {} keys", bounds_.most_keys);
    return true;
  }
  bool start_object(std::size_t /*size*/) override { return open(); }
  bool start_array(std::size_t /*size*/) override { return open(); }
  bool end_object() override { return close(); }
  bool end_array() override { return close(); }

 private:
  bool open() {
    constexpr std::size_t letters_each = 6, always_allowed = 4096;  // "[0,1]," is the shortest list that is written
    require(num_keys_.size() < bounds_.most_depth, "its JSON is nested more than {} levels deep", bounds_.most_depth);
    num_keys_.push_back(0);
    ++num_structures_;
    require(num_structures_ <= always_allowed + num_bytes_ / letters_each,
            "its JSON has more than {} lists and objects in {} bytes", always_allowed + num_bytes_ / letters_each,
            num_bytes_);
    return true;
  }
  bool close() {
    num_keys_.pop_back();
    return true;
  }

  std::size_t num_bytes_, num_structures_ = 0;
  JsonBounds bounds_;
  std::vector<std::size_t> num_keys_;  // of the objects and lists around
};

/// "[json.exception.parse_error.101] parse error at line 1, column 5: syntax error while parsing value - invalid
/// literal; last read: 'tru}'; expected X": what follows the dash, without what was read.
std::string reason_of(const std::string& what) {
  constexpr std::string_view before_reason = " - ", before_token = "; last read: '", before_expected = "; expected ";
  const std::size_t dash = what.find(before_reason), bracket = what.find("] ");
  if (dash == std::string::npos) return what.substr(bracket == std::string::npos ? 0 : bracket + 2);
  std::string reason = what.substr(dash + before_reason.size());
  const std::size_t token = reason.find(before_token), expected = reason.rfind(before_expected);
  if (token == std::string::npos) return reason;
  const bool says_expected = expected != std::string::npos && expected > token;
  return reason.substr(0, token) + (says_expected ? reason.substr(expected) : "");
}

/// Of the token that was read last, if the token is what is wrong, not its last letter. `token` may have more before
/// it, unless it is a string or a number.
std::size_t letters_before_last(const std::string& reason, const std::string& token) {
  if (reason.starts_with("unexpected false literal")) return 4;
  if (reason.starts_with("unexpected true literal") || reason.starts_with("unexpected null literal")) return 3;
  const bool is_whole = reason.starts_with("unexpected string literal") ||
                        reason.starts_with("unexpected number literal") || reason.starts_with("number overflow");
  return is_whole && !token.empty() ? token.size() - 1 : 0;
}

std::string place_and_reason(std::string_view text, const Complaint& complaint) {
  constexpr std::size_t most_shown = 30;
  const std::string reason = reason_of(complaint.what);
  std::size_t at = std::min(std::max<std::size_t>(complaint.position, 1) - 1, text.size());
  at -= std::min(at, letters_before_last(reason, complaint.token));
  const std::string_view before = text.substr(0, at), line = before.substr(before.rfind('\n') + 1);
  const auto column = 1 + std::ranges::count_if(line, [](char c) { return (c & 0xc0) != 0x80; });
  std::string place = fmt::format("column {}", column);
  if (text.find('\n') != std::string_view::npos)
    place = fmt::format("line {}, {}", 1 + std::ranges::count(before, '\n'), place);
  const std::string_view shown = line.substr(0, line.find_last_not_of(" \t\r") + 1);
  if (!shown.empty())
    place += fmt::format(", after '{}'", printable(shown.substr(shown.size() - std::min(shown.size(), most_shown))));
  return fmt::format("not valid JSON at {}: {}", place, printable(reason, 200));
}

}  // namespace

void require_bounded_json(std::string_view text, const JsonBounds& bounds) {
  BoundsCheck check(text.size(), bounds);
  if (!nlohmann::json::sax_parse(text, &check)) throw Error(place_and_reason(text, check.complaint()));
}

nlohmann::json parse_bounded_json(std::string_view text) {
  require_bounded_json(text, {});
  return nlohmann::json::parse(text);
}

nlohmann::json parse_json_object(std::string_view text, const std::string& name) {
  nlohmann::json json;
  try {
    json = parse_bounded_json(text);
  } catch (const Error& error) {
    throw Error(fmt::format("{}: {}", name, error.what()));
  }
  require(json.is_object(), "{} is not a JSON object", name);
  return json;
}

std::string json_fault(std::string_view text) {
  FaultFinder finder;
  return nlohmann::json::sax_parse(text, &finder) ? "" : place_and_reason(text, finder.complaint());
}

}  // namespace echelon
