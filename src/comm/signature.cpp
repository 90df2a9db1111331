#include "comm/signature.h"

namespace echelon {

std::string to_string(const Signature& signature) {
  const std::string_view kind = signature.kind == CommKind::send ? "transfer" : name_of(signature.kind);
  switch (signature.kind) {
    case CommKind::barrier: return std::string(kind);
    case CommKind::all_reduce:
    case CommKind::reduce_scatter:
      return fmt::format("{}({}) of {} {}", kind, name_of(signature.op), signature.num_elements,
                         name_of(signature.dtype));
    case CommKind::broadcast:
      return fmt::format("{} of {} {} from root {}", kind, signature.num_elements, name_of(signature.dtype),
                         signature.root);
    case CommKind::all_to_all:
      if (signature.num_columns > 0)
        return fmt::format("{} of columns of {} {}, {} rows", kind, signature.num_elements, name_of(signature.dtype),
                           signature.num_rows);
      if (signature.has_parts)
        return fmt::format("{} of rows of {} {}", kind, signature.num_elements, name_of(signature.dtype));
      [[fallthrough]];
    case CommKind::all_gather:
    case CommKind::send:
    case CommKind::receive: return fmt::format("{} of {} {}", kind, signature.num_elements, name_of(signature.dtype));
  }
  return "?";
}

std::string listed(const std::vector<int>& ranks) {
  constexpr std::size_t most = 8;
  std::string text = ranks.size() == 1 ? "rank" : "ranks";
  for (std::size_t i = 0; i < ranks.size() && i < most; ++i) text += fmt::format("{} {}", i == 0 ? "" : ",", ranks[i]);
  return ranks.size() > most ? fmt::format("{} and {} more", text, ranks.size() - most) : text;
}

}  // namespace echelon
