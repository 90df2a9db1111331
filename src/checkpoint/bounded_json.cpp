#include "checkpoint/bounded_json.h"

#include "base/error.h"

namespace echelon {
namespace {

/// Sees every value of a text and keeps none.
class ShapeCheck final : public nlohmann::json_sax<nlohmann::json> {
 public:
  explicit ShapeCheck(std::size_t num_bytes) : num_bytes_(num_bytes) {}

  bool null() override { return true; }
  bool boolean(bool /*value*/) override { return true; }
  bool number_integer(number_integer_t /*value*/) override { return true; }
  bool number_unsigned(number_unsigned_t /*value*/) override { return true; }
  bool number_float(number_float_t /*value*/, const string_t& /*text*/) override { return true; }
  bool string(string_t& /*value*/) override { return true; }
  bool binary(binary_t& /*value*/) override { return true; }
  bool key(string_t& /*name*/) override { return true; }
  bool start_object(std::size_t /*size*/) override { return open(); }
  bool start_array(std::size_t /*size*/) override { return open(); }
  bool end_object() override { return close(); }
  bool end_array() override { return close(); }
  bool parse_error(std::size_t /*at*/, const std::string& /*token*/,
                   const nlohmann::json::exception& /*error*/) override {
    return false;
  }

 private:
  bool open() {
    constexpr int most_depth = 32;
    constexpr std::size_t letters_each = 6, always_allowed = 4096;  // "[0,1]," is the shortest list that is written
    require(depth_++ < most_depth, "its JSON is nested more than {} levels deep", most_depth);
    ++num_structures_;
    require(num_structures_ <= always_allowed + num_bytes_ / letters_each,
            "its JSON has more than {} lists and objects in {} bytes", always_allowed + num_bytes_ / letters_each,
            num_bytes_);
    return true;
  }
  bool close() {
    --depth_;
    return true;
  }

  std::size_t num_bytes_, num_structures_ = 0;
  int depth_ = 0;
};

}  // namespace

nlohmann::json parse_bounded_json(std::string_view text) {
  ShapeCheck check(text.size());
  if (!nlohmann::json::sax_parse(text, &check)) return nlohmann::json::value_t::discarded;
  return nlohmann::json::parse(text, nullptr, /*allow_exceptions=*/false);
}

}  // namespace echelon
