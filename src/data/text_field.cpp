#include "data/text_field.h"

#include "base/bounded_json.h"
#include "base/error.h"
#include "base/text/printable.h"
#include "base/text/similar.h"

#include <optional>
#include <utility>
#include <vector>

namespace echelon {
namespace {

class TextField final : public nlohmann::json_sax<nlohmann::json> {
 public:
  explicit TextField(const std::string& key) : key_(key) {}

  bool null() override { return other(); }
  bool boolean(bool /*value*/) override { return other(); }
  bool number_integer(number_integer_t /*value*/) override { return other(); }
  bool number_unsigned(number_unsigned_t /*value*/) override { return other(); }
  bool number_float(number_float_t /*value*/, const string_t& /*text*/) override { return other(); }
  bool binary(binary_t& /*value*/) override { return other(); }
  bool string(string_t& value) override {
    if (is_wanted()) text_ = std::move(value);
    return true;
  }
  bool key(string_t& name) override {
    constexpr std::size_t most_keys = 100;  // for a message
    if (depth_ != 1) return true;
    is_key_ = name == key_;
    if (keys_.size() < most_keys) keys_.push_back(name);
    return true;
  }
  bool start_object(std::size_t /*size*/) override {
    is_object_ = is_object_ || depth_ == 0;
    return open();
  }
  bool start_array(std::size_t /*size*/) override { return open(); }
  bool end_object() override { return close(); }
  bool end_array() override { return close(); }
  bool parse_error(std::size_t /*position*/, const std::string& /*token*/,
                   const nlohmann::json::exception& /*error*/) override {
    return false;
  }

  std::string take() {
    require(is_object_, "not a JSON object with a text under \"{}\" (prepare --text-key)", key_);
    if (text_) return *std::move(text_);
    std::vector<std::string_view> names(keys_.begin(), keys_.end());
    const std::string meant = similar(key_, names);
    throw Error(fmt::format(
        "no text under \"{}\" (prepare --text-key){}", key_,
        meant.empty() || meant == key_ ? "" : fmt::format("; did you mean \"{}\"?", printable(meant, 100))));
  }

 private:
  [[nodiscard]] bool is_wanted() const { return depth_ == 1 && is_key_; }
  bool other() {
    if (is_wanted()) text_.reset();
    return true;
  }
  bool open() {
    (void)other();
    ++depth_;
    return true;
  }
  bool close() {
    --depth_;
    return true;
  }

  const std::string& key_;
  std::optional<std::string> text_;
  std::vector<std::string> keys_;
  std::size_t depth_ = 0;
  bool is_key_ = false, is_object_ = false;
};

}  // namespace

std::string read_text_field(std::string_view line, const std::string& key) {
  TextField field(key);
  if (!nlohmann::json::sax_parse(line, &field)) throw Error(json_fault(line));
  return field.take();
}

}  // namespace echelon
