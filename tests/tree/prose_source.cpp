#include "tree/prose.h"
#include "tree/tree.h"

namespace echelon::tree {
namespace {

enum class TokenKind { comment, literal, name };

struct Token {
  TokenKind kind{};
  int line = 0;
  std::size_t begin = 0, end = 0;  // in the source
  std::string text;                // without slashes, quotes and escapes
};

/// Comments, string literals and identifiers of a C++ source, in order.
class Scanner {
 public:
  explicit Scanner(const std::string& source) : source_(source) {}

  std::vector<Token> tokens() {
    while (at_ < source_.size()) next();
    return std::move(tokens_);
  }

 private:
  [[nodiscard]] bool sees(std::string_view text) const { return source_.compare(at_, text.size(), text) == 0; }
  [[nodiscard]] bool sees_name() const {
    const auto c = static_cast<unsigned char>(source_[at_]);
    return std::isalnum(c) != 0 || c == '_';
  }

  void next() {
    if (sees("#include")) return skip(source_.find('\n', at_));
    if (sees("//")) return add(TokenKind::comment, at_ + 2, source_.find('\n', at_), 0);
    if (sees("/*")) return add(TokenKind::comment, at_ + 2, source_.find("*/", at_ + 2), 2);
    if (sees("R\"")) return raw_literal();
    if (sees("\"")) return quoted('"');
    if (sees("'")) return quoted('\'');
    if (sees_name()) return name();
    skip(at_ + 1);
  }

  void skip(std::size_t to) {
    to = std::min(to, source_.size());
    line_ += static_cast<int>(std::count(source_.begin() + static_cast<std::ptrdiff_t>(at_),
                                         source_.begin() + static_cast<std::ptrdiff_t>(to), '\n'));
    at_ = to;
  }

  void add(TokenKind kind, std::size_t first, std::size_t last, std::size_t num_closing) {
    last = std::min(last, source_.size());
    tokens_.push_back({kind, line_, at_, last + num_closing, source_.substr(first, last - first)});
    skip(last + num_closing);
  }

  void raw_literal() {
    const std::size_t open = source_.find('(', at_);
    const std::string close = ")" + source_.substr(at_ + 2, open - at_ - 2) + "\"";
    add(TokenKind::literal, open + 1, source_.find(close, open), close.size());
  }

  void quoted(char quote) {
    std::size_t last = at_ + 1;
    while (last < source_.size() && source_[last] != quote) last += source_[last] == '\\' ? 2 : 1;
    if (quote == '"') return add(TokenKind::literal, at_ + 1, last, 1);
    skip(last + 1);
  }

  // A number such as 1'000 is read here too, so that its quotes open no literal.
  void name() {
    const std::size_t first = at_;
    const bool is_number = std::isdigit(static_cast<unsigned char>(source_[at_])) != 0;
    while (at_ < source_.size() && (sees_name() || (is_number && source_[at_] == '\''))) ++at_;
    if (!is_number) tokens_.push_back({TokenKind::name, line_, first, at_, source_.substr(first, at_ - first)});
  }

  const std::string& source_;
  std::vector<Token> tokens_;
  std::size_t at_ = 0;
  int line_ = 1;
};

std::vector<Token> tokens_of(const std::string& source, TokenKind kind) {
  std::vector<Token> tokens = Scanner(source).tokens();
  std::erase_if(tokens, [&](const Token& token) { return token.kind != kind; });
  return tokens;
}

/// Whether nothing but blanks and at most one line break is between two tokens.
bool are_adjacent(const std::string& source, const Token& a, const Token& b) {
  const std::string between = source.substr(a.end, b.begin - a.end);
  return between.find_first_not_of(" \n") == std::string::npos && std::ranges::count(between, '\n') <= 1;
}

/// Identifiers and calls that a comment names, as code.
std::string without_names(const std::string& text) {
  static const std::regex name(
      R"([\w:.>-]*(_|::|->)([\w:>()-]|\.(?=\w))*|\w+\(\)|\b[a-z]+[A-Z]\w*|\b([A-Z][a-z]+){2,}\b)");
  return std::regex_replace(text, name, "_");
}

}  // namespace

std::vector<Passage> comments_of(const std::string& file, const std::string& source) {
  static const std::regex slashes(R"((^|\n)( \*|[/!<*]*) ?)"), drawing(R"((^|\n)    [^\n]*)");
  std::vector<Passage> passages;
  const std::vector<Token> tokens = tokens_of(source, TokenKind::comment);
  for (std::size_t i = 0; i < tokens.size();) {
    std::string text = tokens[i].text;
    std::size_t next = i + 1;
    for (; next < tokens.size() && are_adjacent(source, tokens[next - 1], tokens[next]); ++next)
      text += "\n" + tokens[next].text;
    text = std::regex_replace(std::regex_replace(text, slashes, "$1"), drawing, "$1");
    for (Passage& passage : markdown_passages(file, text)) {
      passage.line += tokens[i].line - 1;
      passage.text = without_names(passage.text);
      passages.push_back(std::move(passage));
    }
    i = next;
  }
  return passages;
}

std::vector<Passage> messages_of(const std::string& file, const std::string& source) {
  static const std::regex escape(R"(\\[nt]|\{[^}]*\})"), other_escape(R"(\\(.))"), markup(R"(</?[a-z!][^>]*>)");
  std::vector<Passage> passages;
  const std::vector<Token> tokens = tokens_of(source, TokenKind::literal);
  for (std::size_t i = 0; i < tokens.size(); ++i) {
    const bool is_joined = i > 0 && are_adjacent(source, tokens[i - 1], tokens[i]);
    if (!is_joined) passages.push_back({file, tokens[i].line, ""});
    passages.back().text += tokens[i].text;
  }
  for (Passage& passage : passages) {
    passage.text = std::regex_replace(passage.text, escape, " _ ");
    passage.text = std::regex_replace(std::regex_replace(passage.text, other_escape, "$1"), markup, " ");
    passage.text = without_names(passage.text);
  }
  std::erase_if(passages, [](const Passage& passage) { return num_words(passage.text) < 2; });
  return passages;
}

std::vector<Passage> names_of(const std::string& file, const std::string& source) {
  static const std::regex hump("([a-z0-9])([A-Z])"), underscore("_+");
  std::vector<Passage> passages;
  std::set<std::string> known;
  for (const Token& token : tokens_of(source, TokenKind::name)) {
    if (!known.insert(token.text).second) continue;
    const std::string words = std::regex_replace(std::regex_replace(token.text, hump, "$1 $2"), underscore, " ");
    passages.push_back({file, token.line, words});
  }
  return passages;
}

}  // namespace echelon::tree
