#include "types/typed_memory.h"

#include <algorithm>
#include <set>

namespace echelon {
namespace {
const std::byte* end_of(const Tensor& x) { return x.data + x.num_bytes(); }
}  // namespace

std::string Writer::words() const {
  std::string words(operation);
  if (!param.empty()) words += (is_downstream ? " behind " : " of ") + param;
  return words;
}

void TypedMemory::split(const std::byte* address) {
  auto after = stretches_.upper_bound(address);
  if (after == stretches_.begin()) return;
  auto& [begin, stretch] = *std::prev(after);
  if (begin == address || stretch.end <= address) return;
  stretches_.emplace_hint(after, address, stretch);
  stretch.end = address;
}

void TypedMemory::erase(const Tensor& x) {
  split(x.data);
  split(end_of(x));
  stretches_.erase(stretches_.lower_bound(x.data), stretches_.lower_bound(end_of(x)));
}

void TypedMemory::write(const Tensor& x, const TypedPiece& piece) {
  if (x.num_bytes() == 0) return;
  const auto same = stretches_.find(x.data);
  if (same != stretches_.end() && same->second.end == end_of(x)) {
    same->second.piece = piece;
    return;
  }
  erase(x);
  stretches_[x.data] = {end_of(x), piece};
}

TypedMemory::Stretches::const_iterator TypedMemory::at(const std::byte* address) const {
  const auto after = stretches_.upper_bound(address);
  if (after == stretches_.begin()) return stretches_.end();
  const auto found = std::prev(after);
  return found->second.end > address ? found : stretches_.end();
}

std::optional<TypedPiece> TypedMemory::find(const Tensor& x, std::optional<TypedPiece>& differing) const {
  const auto first = at(x.data);
  if (first == stretches_.end()) return {};
  const TypedPiece& piece = first->second.piece;
  const std::byte* known = first->second.end;
  for (auto next = std::next(first); known < end_of(x); known = next->second.end, ++next) {
    if (next == stretches_.end() || next->first != known) return {};
    if (next->second.piece.type != piece.type) differing = next->second.piece;
  }
  return piece;
}

TypedPiece* TypedMemory::piece_at(const Tensor& x) {
  const auto found = at(x.data);
  return found == stretches_.end() ? nullptr : &stretches_.at(found->first).piece;
}

void TypedMemory::for_uniform_ranges(std::span<const Tensor> tensors,
                                     const std::function<void(std::int64_t, std::int64_t)>& f) const {
  std::set<std::int64_t> borders = {0, tensors[0].num_elements()};
  for (const Tensor& x : tensors) {
    const std::int64_t size = size_of(x.dtype);
    auto next = stretches_.upper_bound(x.data);
    if (next != stretches_.begin()) --next;
    for (; next != stretches_.end() && next->first < end_of(x); ++next)
      for (const std::byte* border : {next->first, next->second.end})
        if (border > x.data && border < end_of(x)) borders.insert((border - x.data) / size);
  }
  for (auto first = borders.begin(), end = std::next(first); end != borders.end(); ++first, ++end)
    f(*first, *end - *first);
}

void TypedMemory::name(const Tensor& x, NamedMemory named) {
  if (x.num_bytes() == 0) return;
  erase_names(x);
  named_[x.data] = {end_of(x), std::move(named)};
}

void TypedMemory::forget(const Tensor& x) {
  if (x.num_bytes() == 0) return;
  erase(x);
  erase_names(x);
}

void TypedMemory::erase_names(const Tensor& x) {
  named_.erase(named_.lower_bound(x.data), named_.lower_bound(end_of(x)));
}

const NamedMemory* TypedMemory::named_at(const Tensor& x) const {
  const auto after = named_.upper_bound(x.data);
  if (after == named_.begin()) return nullptr;
  const auto& [end, named] = std::prev(after)->second;
  return end > x.data ? &named : nullptr;
}

std::vector<std::pair<Tensor, const NamedMemory*>> TypedMemory::named_in(const Tensor& x) const {
  std::vector<std::pair<Tensor, const NamedMemory*>> found;
  for (auto next = named_.lower_bound(x.data); next != named_.end() && next->first < end_of(x); ++next) {
    const std::int64_t first = (next->first - x.data) / size_of(x.dtype),
                       end = (next->second.first - x.data) / size_of(x.dtype);
    found.emplace_back(x.rows(first, end - first), &next->second.second);
  }
  return found;
}

int TypedMemory::add_writer(Writer writer) {
  writers_.push_back(std::move(writer));
  return static_cast<int>(writers_.size()) - 1;
}

int TypedMemory::add_gathered(GatheredMemory parts) {
  gathered_.push_back(std::move(parts));
  return static_cast<int>(gathered_.size()) - 1;
}

bool TypedMemory::is_own_part(const TypedPiece& piece, const Tensor& x, TypeAxis axis) const {
  if (piece.gathered < 0) return false;
  const GatheredMemory& parts = gathered_[static_cast<std::size_t>(piece.gathered)];
  return std::find(parts.axes.begin(), parts.axes.end(), axis) != parts.axes.end() && x.data >= parts.own_begin &&
         end_of(x) <= parts.own_end;
}

}  // namespace echelon
