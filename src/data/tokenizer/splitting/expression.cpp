#include "data/tokenizer/splitting/expression.h"

#include "data/tokenizer/splitting/class_syntax.h"

#include <algorithm>
#include <charconv>
#include <limits>
#include <utility>

namespace echelon {
namespace {

constexpr std::uint32_t unlimited = std::numeric_limits<std::uint32_t>::max();
constexpr std::size_t most_classes = 32;
constexpr int deepest_group = 8;

using Alternatives = std::vector<std::vector<Term>>;

class ExpressionParser {
 public:
  explicit ExpressionParser(std::string_view pattern) : pattern_(pattern) {}

  std::optional<Expression> parse() {
    auto alternatives = read_alternatives(false, 0);
    if (!alternatives || at_ != pattern_.size()) return std::nullopt;
    expression_.alternatives = std::move(*alternatives);
    return std::move(expression_);
  }

 private:
  bool take(std::string_view token) {
    if (!pattern_.substr(at_).starts_with(token)) return false;
    at_ += token.size();
    return true;
  }

  std::optional<Alternatives> read_alternatives(bool ignores_case, int depth) {
    Alternatives alternatives(1);
    while (at_ < pattern_.size() && pattern_[at_] != ')') {
      if (take("|")) {
        alternatives.emplace_back();
        continue;
      }
      auto term = read_term(ignores_case, depth);
      if (!term || !read_times(*term)) return std::nullopt;
      alternatives.back().push_back(std::move(*term));
    }
    if (std::any_of(alternatives.begin(), alternatives.end(), may_be_empty)) return std::nullopt;
    for (std::vector<Term>& terms : alternatives) mark_possessive(terms);
    return alternatives;
  }

  std::optional<Term> read_term(bool ignores_case, int depth) {
    Term term;
    if (take("(?!")) {
      term.kind = Term::Kind::not_before;
      return read_members(term, ignores_case) && take(")") ? std::optional(term) : std::nullopt;
    }
    if (take("$")) {
      term.kind = Term::Kind::at_end;
      return term;
    }
    const bool is_caseless = take("(?i:");
    if (is_caseless || take("(?:")) {
      term.kind = Term::Kind::group;
      if (depth == deepest_group) return std::nullopt;
      auto inside = read_alternatives(ignores_case || is_caseless, depth + 1);
      if (!inside || !take(")")) return std::nullopt;
      term.alternatives = std::move(*inside);
      return term;
    }
    return read_members(term, ignores_case) ? std::optional(term) : std::nullopt;
  }

  bool read_members(Term& term, bool ignores_case) {
    auto set = read_class(pattern_, at_);
    if (set && ignores_case) set = without_case(*set);
    if (!set) return false;
    const auto same = [&](const CodePointSet& known) { return known.ranges() == set->ranges(); };
    const auto found = std::find_if(expression_.classes.begin(), expression_.classes.end(), same);
    const auto index = static_cast<std::size_t>(found - expression_.classes.begin());
    if (found == expression_.classes.end()) expression_.classes.push_back(std::move(*set));
    term.members = std::uint32_t{1} << std::min(index, most_classes - 1);
    return index < most_classes;
  }

  // Greedy quantifiers, and possessive ones.
  bool read_times(Term& term) {
    if (term.kind == Term::Kind::not_before || term.kind == Term::Kind::at_end) return true;
    const bool has_times = take("?")   ? set_times(term, 0, 1)
                           : take("*") ? set_times(term, 0, unlimited)
                           : take("+") ? set_times(term, 1, unlimited)
                                       : false;
    bool has_braces = false;
    if (!has_times && at_ < pattern_.size() && pattern_[at_] == '{') {
      if (!read_braces(term)) return false;
      has_braces = true;
    }
    if (term.kind == Term::Kind::group && (has_braces || term.max != 1)) return false;
    if (!has_times && !has_braces) return true;
    if (at_ < pattern_.size() && pattern_[at_] == '?') return false;  // lazy
    if (at_ < pattern_.size() && pattern_[at_] == '+') {
      if (has_braces || term.kind == Term::Kind::group) return false;  // Oniguruma reads {1,3}+ as ({1,3})+
      term.is_possessive = take("+");
    }
    return true;
  }

  static bool may_be_empty(const std::vector<Term>& terms) {
    return std::all_of(terms.begin(), terms.end(), [](const Term& term) {
      return term.min == 0 || term.kind == Term::Kind::not_before || term.kind == Term::Kind::at_end;
    });
  }

  static bool set_times(Term& term, std::uint32_t min, std::uint32_t max) {
    term.min = min;
    term.max = max;
    return true;
  }

  bool read_braces(Term& term) {
    const std::size_t end = pattern_.find('}', at_);
    if (end == std::string_view::npos) return false;
    const std::string_view inside = pattern_.substr(at_ + 1, end - at_ - 1);
    const std::size_t comma = inside.find(',');
    const auto number = [](std::string_view digits, std::uint32_t& value) {
      const auto [last, error] = std::from_chars(digits.data(), digits.data() + digits.size(), value);
      return error == std::errc() && last == digits.data() + digits.size() && value <= 1000;
    };
    if (!number(inside.substr(0, comma), term.min)) return false;
    term.max = term.min;
    if (comma != std::string_view::npos) {
      term.max = unlimited;
      if (comma + 1 < inside.size() && !number(inside.substr(comma + 1), term.max)) return false;
    }
    at_ = end + 1;
    return term.min <= term.max && term.max > 0;
  }

  // Giving characters back cannot help if what must follow is of none of their class.
  void mark_possessive(std::vector<Term>& terms) const {
    for (std::size_t i = 0; i + 1 < terms.size(); ++i) {
      const Term& next = terms[i + 1];
      const bool both = terms[i].kind == Term::Kind::repeat && next.kind == Term::Kind::repeat && next.min > 0;
      if (both && are_disjoint(terms[i].members, next.members)) terms[i].is_possessive = true;
    }
  }

  [[nodiscard]] bool are_disjoint(std::uint32_t a, std::uint32_t b) const {
    const CodePointSet& first = expression_.classes[index_of(a)];
    const CodePointSet& second = expression_.classes[index_of(b)];
    return num_members(first) + num_members(second) == num_members(first.united(second));
  }

  static std::size_t index_of(std::uint32_t bit) {
    std::size_t index = 0;
    while ((bit >> index & 1) == 0) ++index;
    return index;
  }
  static std::size_t num_members(const CodePointSet& set) {
    std::size_t count = 0;
    for (const CodePointRange& range : set.ranges()) count += range.end - range.first;
    return count;
  }

  std::string_view pattern_;
  std::size_t at_ = 0;
  Expression expression_;
};

}  // namespace

std::optional<Expression> parse_expression(std::string_view pattern) {
  if (pattern.empty()) return std::nullopt;
  return ExpressionParser(pattern).parse();
}

}  // namespace echelon
