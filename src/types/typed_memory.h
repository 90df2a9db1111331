// The layout type and the writer of every range of a rank's memory. Types are stored by address, so views and slices of
// a buffer have types too.
#pragma once

#include "types/layout_type.h"

#include <functional>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace echelon {

/// Who wrote something.
struct Writer {
  std::string_view operation;  // "matmul"
  std::string param;           // the parameter that it worked on, or one before it; may be empty
  bool is_downstream = false;  // it worked on what came from that parameter

  /// "matmul of model.layers.0.mlp.down_proj.weight"
  [[nodiscard]] std::string words() const;
};

/// Memory that was gathered from parts, and this rank's own part of it.
struct GatheredMemory {
  std::vector<TypeAxis> axes;
  const std::byte* own_begin = nullptr;
  const std::byte* own_end = nullptr;
};

struct TypedPiece {
  LayoutType type;
  int writer = 0;
  int gathered = -1;        // index of GatheredMemory; -1: was not gathered
  bool is_counted = false;  // a gradient whose squares are in the norm
};

/// Memory that has a name: a parameter's value or gradient, or what the host writes and reads.
struct NamedMemory {
  std::string name;
  LayoutType type;           // of the parameter's value, and of what the host writes here, which may be zero
  bool is_gradient = false;  // of that parameter
  bool is_addend =
      false;  // of a sum over all ranks: a value that several ranks share is added here by the first of them
  bool is_of_host = false;  // no parameter's
};

class TypedMemory {
 public:
  /// All of x gets one type.
  void write(const Tensor& x, const TypedPiece& piece);
  /// What is known of all of x: nothing if some of it was never written. Throws nothing if parts of x differ: it
  /// returns the first, and sets `differing` to another one.
  [[nodiscard]] std::optional<TypedPiece> find(const Tensor& x, std::optional<TypedPiece>& differing) const;
  /// The piece at the first element of x, if that was written.
  [[nodiscard]] TypedPiece* piece_at(const Tensor& x);

  /// Ranges of elements of equally long tensors in which none of them changes its type, in order: f(first, count).
  void for_uniform_ranges(std::span<const Tensor> tensors,
                          const std::function<void(std::int64_t, std::int64_t)>& f) const;

  void name(const Tensor& x, NamedMemory named);
  /// Forgets x: it counts as never written, and memory that starts in it has no name.
  void forget(const Tensor& x);
  /// The named memory in which x starts, or null.
  [[nodiscard]] const NamedMemory* named_at(const Tensor& x) const;
  /// All named memory in the flat tensor x.
  [[nodiscard]] std::vector<std::pair<Tensor, const NamedMemory*>> named_in(const Tensor& x) const;

  [[nodiscard]] int add_writer(Writer writer);
  [[nodiscard]] const Writer& writer(const TypedPiece& piece) const {
    return writers_[static_cast<std::size_t>(piece.writer)];
  }
  [[nodiscard]] int add_gathered(GatheredMemory parts);
  /// True if x, which is part of `piece`, is this rank's own part of what was gathered along `axis`.
  [[nodiscard]] bool is_own_part(const TypedPiece& piece, const Tensor& x, TypeAxis axis) const;

 private:
  struct MemoryRange {
    const std::byte* end = nullptr;
    TypedPiece piece;
  };
  using Stretches = std::map<const std::byte*, MemoryRange>;
  void split(const std::byte* address);
  void erase(const Tensor& x);
  void erase_names(const Tensor& x);
  /// The range that holds the address, or the end.
  [[nodiscard]] Stretches::const_iterator at(const std::byte* address) const;

  Stretches stretches_;
  std::map<const std::byte*, std::pair<const std::byte*, NamedMemory>> named_;  // start -> end and its name
  std::vector<Writer> writers_ = {{}};
  std::vector<GatheredMemory> gathered_;
};

}  // namespace echelon
