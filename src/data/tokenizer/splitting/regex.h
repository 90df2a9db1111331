// Regular expressions of tokenizer files that a Scanner does not run, by PCRE2.
#pragma once

#include <memory>
#include <string>
#include <string_view>

namespace echelon {

/// Thread-safe.
class Regex {
 public:
  /// Throws Error with the pattern and the reason if it does not compile or has a class that is not supported.
  explicit Regex(const std::string& pattern);
  ~Regex();
  Regex(Regex&&) noexcept;
  Regex& operator=(Regex&&) noexcept;

  /// What one search after another in the same text needs. For one thread.
  class Matches {
   public:
    Matches(const Regex& regex, std::string_view text);
    ~Matches();
    Matches(Matches&&) noexcept;
    Matches& operator=(Matches&&) noexcept;
    /// The first match at or after `offset` in the valid UTF-8; at the end of the text, and empty, if there is none.
    /// Throws Error if it exceeds its match limits.
    [[nodiscard]] std::string_view find(std::size_t offset);

   private:
    struct Data;
    std::unique_ptr<Data> data_;
  };

 private:
  struct Code;
  std::unique_ptr<Code> code_;
};

/// The pattern with its classes written out as ranges of our tables: PCRE2 knows another version of Unicode.
[[nodiscard]] std::string as_pcre2(const std::string& pattern);

}  // namespace echelon
