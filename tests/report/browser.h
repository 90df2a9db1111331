// A real browser without a window, driven over its debugging pipe (the DevTools protocol): it opens pages, evaluates
// scripts, takes screenshots and collects errors.
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
  bool is_phone = false;  // with touch instead of a mouse
};

class Browser {
 public:
  /// The path of this machine's chromium; none if it has none.
  [[nodiscard]] static std::optional<std::string> program();

  /// Starts it, with an empty profile in `folder`. Throws Failure if it does not answer.
  Browser(const std::string& program, const std::filesystem::path& folder);
  ~Browser();
  Browser(const Browser&) = delete;
  Browser& operator=(const Browser&) = delete;

  /// Shows a file and waits until it is loaded; forgets earlier errors.
  void open(const std::filesystem::path& file, const Screen& screen);
  /// The value of a script's expression, or of the promise that it returns. Throws Failure if it throws.
  [[nodiscard]] nlohmann::json evaluate(const std::string& expression);
  /// Calls any method of the protocol on the current page.
  nlohmann::json call(const std::string& method, const nlohmann::json& parameters);
  /// The whole page as PNG, into `file`.
  void photograph(const std::filesystem::path& file);

  /// Since `open`: errors and warnings of the console, exceptions, and network requests other than for the page.
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
