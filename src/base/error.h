// What stops a run: bad input, a failed system call, a lost peer. Answers such as "this layout does not fit" are
// values, never exceptions.
#pragma once

#include <fmt/format.h>

#include <span>
#include <stdexcept>
#include <string>
#include <string_view>

namespace echelon {

/// Exit statuses of the program, the same for every command.
enum class ExitStatus : int {
  success = 0,
  failure = 1,
  bad_input = 2,
  restart = 75,       // a run that was asked to end: start it again
  interrupted = 130,  // by a signal: 128 and its number, as shells count
};

/// Bad input: one sentence with the key, the value and the fix. Ends the program with status 2.
class Error : public std::runtime_error {
 public:
  /// A zero byte of the input is written as "\\x00", since what() would end there.
  explicit Error(const std::string& sentence, ExitStatus status = ExitStatus::bad_input);
  [[nodiscard]] ExitStatus status() const { return status_; }

 private:
  ExitStatus status_;
};

/// The machine failed a good request: a full disk, a lost peer, an aborted rank. Ends the program with status 1.
class Failure : public Error {
 public:
  explicit Failure(const std::string& sentence) : Error(sentence, ExitStatus::failure) {}
};

/// Throws Error with the formatted sentence unless `holds`.
template <class... Args>
void require(bool holds, fmt::format_string<Args...> format, Args&&... args) {
  if (!holds) throw Error(fmt::format(format, std::forward<Args>(args)...));
}

/// What other software calls `name`, else a candidate of its start, one that has it in it, or the one of fewest edits
/// (with a transposition as one), whatever the case and the dashes. The first for no letters; empty for no candidates.
[[nodiscard]] std::string closest_name(std::string_view name, std::span<const std::string_view> candidates);

}  // namespace echelon
