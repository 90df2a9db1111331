// A real browser without a window, driven over its debugging pipe (the DevTools protocol): pages are opened, asked and
// photographed, and what the browser complains about is collected.
#pragma once

#include <sys/types.h>

#include <filesystem>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

namespace echelon {

struct Screen {
  int width = 1200, height = 800;
  bool is_dark = false;
  bool is_phone = false;  // with fingers instead of a mouse
};

class Browser {
 public:
  /// Where a chromium of this machine is; none: there is none.
  [[nodiscard]] static std::optional<std::string> program();

  /// Starts it, with an empty profile in `folder`. Throws Failure if it does not answer.
  Browser(const std::string& program, const std::filesystem::path& folder);
  ~Browser();
  Browser(const Browser&) = delete;
  Browser& operator=(const Browser&) = delete;

  /// Shows a file and waits until it is loaded; forgets what was complained about before.
  void open(const std::filesystem::path& file, const Screen& screen);
  /// The value of a script's expression; of a promise, what it comes to. Throws Failure if it throws.
  [[nodiscard]] nlohmann::json evaluate(const std::string& expression);
  /// Any method of the protocol, on the page at hand.
  nlohmann::json call(const std::string& method, const nlohmann::json& parameters);
  /// The whole page as PNG, into `file`.
  void photograph(const std::filesystem::path& file);

  /// Since `open`: errors and warnings of the console, exceptions, and what was asked of the network besides the page.
  [[nodiscard]] const std::vector<std::string>& complaints() const { return complaints_; }

 private:
  nlohmann::json send(const std::string& method, const nlohmann::json& parameters, const std::string& session);
  [[nodiscard]] nlohmann::json receive();
  void take(const nlohmann::json& event);

  pid_t process_ = -1;
  int commands_ = -1, answers_ = -1;
  int num_sent_ = 0;
  bool is_loaded_ = false;
  std::string received_, session_, page_;
  std::vector<std::string> complaints_;
};

}  // namespace echelon
