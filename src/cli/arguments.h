// Makes two things strict that CLI11 guesses: which argument is the value of an option, and whether it is a number. And
// keeps files that are written apart from the others.
#pragma once

#include <string>
#include <vector>

namespace CLI {  // NOLINT(readability-identifier-naming)
class App;
class ExcludesError;
class Validator;
}  // namespace CLI

namespace echelon {

/// Splits `--option=value` into two arguments, for the options of the command that take a value. "--output=" then has
/// an empty value instead of the next argument. A whole number may be written as 1e6. Throws Error where a value is
/// missing ("--output --json") or is not the number that the option needs.
[[nodiscard]] std::vector<std::string> with_values_apart(const CLI::App& command,
                                                         const std::vector<std::string>& arguments);

/// CLI11's "--a excludes --b" with what was given, and what to do.
[[nodiscard]] std::string with_values(const CLI::App& command, const CLI::ExcludesError& error);

/// Throws Error if a file that an option of the parsed command writes is also one that it reads, or that another option
/// writes. `config_arguments`: --section.key=value, which name files too.
void require_files_apart(const CLI::App& command, const std::vector<std::string>& config_arguments);

/// Of `echelon draw`, for schedules alone.
inline constexpr const char* schedule_options[] = {
    "--schedule",          "--schedule-csv",       "--stages", "--microbatches", "--virtual",      "--forward-ms",
    "--backward-input-ms", "--backward-weight-ms", "--p2p-ms", "--backward",     "--memory-limit", "--weight-memory"};

/// Accepts a number from `least` to `most`; a value outside is refused with the bound.
[[nodiscard]] CLI::Validator in_range(double least, double most);

}  // namespace echelon
