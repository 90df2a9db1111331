// What is known of every stretch of a rank's memory: its layout type, and who wrote it. Types are kept per address, so
// that views and slices of a buffer have types without knowing of them.
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
  std::string param;           // the parameter that it worked on, or one on the way to it; may be empty
  bool is_behind = false;      // it worked on what came from that parameter

  /// "matmul of model.layers.0.mlp.down_proj.weight", "swiglu behind model.layers.0.mlp.gate_proj.weight"
  [[nodiscard]] std::string words() const;
};

/// What was gathered from parts lies at these addresses, and this rank's own part of it at those.
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
  bool is_addend = false;    // of a sum over all ranks: of what several of them have alike, the first adds it here
  bool is_of_host = false;   // no parameter's
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
  /// Of x nothing is known any more: it was never written, and what begins in it has no name.
  void forget(const Tensor& x);
  /// That in which x begins, or null.
  [[nodiscard]] const NamedMemory* named_at(const Tensor& x) const;
  /// All that lies in the flat tensor x, and what it is.
  [[nodiscard]] std::vector<std::pair<Tensor, const NamedMemory*>> named_in(const Tensor& x) const;

  [[nodiscard]] int add_writer(Writer writer);
  [[nodiscard]] const Writer& writer(const TypedPiece& piece) const {
    return writers_[static_cast<std::size_t>(piece.writer)];
  }
  [[nodiscard]] int add_gathered(GatheredMemory parts);
  /// True if x, which is part of `piece`, is this rank's own part of what was gathered along `axis`.
  [[nodiscard]] bool is_own_part(const TypedPiece& piece, const Tensor& x, TypeAxis axis) const;

 private:
  struct Stretch {
    const std::byte* end = nullptr;
    TypedPiece piece;
  };
  using Stretches = std::map<const std::byte*, Stretch>;
  void split(const std::byte* address);
  void erase(const Tensor& x);
  void erase_names(const Tensor& x);
  /// The stretch that holds the address, or the end.
  [[nodiscard]] Stretches::const_iterator at(const std::byte* address) const;

  Stretches stretches_;
  std::map<const std::byte*, std::pair<const std::byte*, NamedMemory>> named_;  // begin -> end and what it is
  std::vector<Writer> writers_ = {{}};
  std::vector<GatheredMemory> gathered_;
};

}  // namespace echelon
