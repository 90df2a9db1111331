// Type inference of one call: reads the types of its operands, writes the types of its results, and reports a fault in
// one sentence that names the layer and the operation.
#pragma once

#include "types/rank_axes.h"
#include "types/typed_memory.h"

#include <string_view>

namespace echelon {

/// A tensor that a call reads. Zeros read as replicated, since all ranks have the same of them.
struct Operand {
  std::string_view role;  // "x", "dy": its name among the call's arguments
  Tensor tensor;
  TypedPiece piece;

  [[nodiscard]] AxisLayout operator[](TypeAxis axis) const { return piece.type[axis]; }
  [[nodiscard]] bool is_sharded_along(TypeAxis axis, int dim) const {
    return echelon::is_sharded_along((*this)[axis], tensor, dim);
  }
};

/// Elements [first, first + count) of x in a row; x itself where that is all of it.
[[nodiscard]] inline Tensor range_of(const Tensor& x, std::int64_t first, std::int64_t count) {
  return count == x.num_elements() ? x : x.flat().rows(first, count);
}

class Inference {
 public:
  /// `operands`: whatever may tell of which layer this is; what is read first.
  Inference(TypedMemory& memory, const RankAxes& axes, std::string_view operation, std::span<const Tensor> operands);

  [[nodiscard]] TypedMemory& memory() const { return memory_; }
  [[nodiscard]] const RankAxes& ranks() const { return axes_; }
  [[nodiscard]] const std::vector<TypeAxis>& axes() const { return axes_.all(); }

  /// Fails where x was never written, or has different types in different places.
  [[nodiscard]] Operand read(std::string_view role, const Tensor& x) const;
  /// This memory has no name.
  [[nodiscard]] bool is_nameless(const Tensor& x) const {
    return memory_.named_at(x) == nullptr && memory_.named_in(x.flat()).empty();
  }
  /// Between the parameters of a flat buffer: nameless, and never written.
  [[nodiscard]] bool is_padding(const Tensor& x) const { return memory_.piece_at(x) == nullptr && is_nameless(x); }
  void write(const Tensor& x, const LayoutType& type);
  /// `gathered`: TypedMemory::add_gathered.
  void write_gathered(const Tensor& x, const LayoutType& type, int gathered);
  /// x += something of this type: x is zero or has that type already.
  void add_to(std::string_view role, const Tensor& x, const LayoutType& type);

  /// Fails unless every value of x is final: neither an addend nor a maximum of a part.
  void require_complete(const Operand& x, TypeAxis axis) const;
  void require_whole(const Operand& x, TypeAxis axis) const;  // complete, and not a part
  /// Fails unless all ranks have the same, since it decides what they do.
  void require_the_same(const Operand& x) const;
  /// The common layout of two operands that are combined element by element. A replicated operand can be combined with
  /// one that is each rank's own. Attended rows are united.
  [[nodiscard]] AxisLayout shared(const Operand& a, const Operand& b, TypeAxis axis) const;
  /// Fails unless `first` is the start of this rank's part of x, if ranks hold parts along `dim`.
  void require_position(const Operand& x, int dim, std::int64_t first) const;

  /// f(first, count) for ranges of elements in which no tensor changes its type.
  void for_uniform_ranges(std::initializer_list<Tensor> tensors,
                          const std::function<void(std::int64_t, std::int64_t)>& f) const;

  /// Throws Failure: "matmul of model.layers.0.mlp.down_proj.weight: " and the sentence.
  [[noreturn]] void fail(const std::string& sentence) const;
  /// "x, which swiglu of ... wrote, is partial over tp"
  [[nodiscard]] std::string words(const Operand& x, TypeAxis axis) const;
  [[noreturn]] void fail_together(const Operand& a, const Operand& b, TypeAxis axis) const;

 private:
  /// Of a parameter that the stages share each stage's gradient is an addend.
  [[nodiscard]] LayoutType as_gradient(const Tensor& x, LayoutType type) const;

  TypedMemory& memory_;
  const RankAxes& axes_;
  Writer self_;
  int self_index_ = -1;
};

}  // namespace echelon
