// The place of each parameter of a model in the files of its family. Files of other families than Llama use other
// names, store several linear layers as one tensor, or transpose every matrix (GPT-2's Conv1D: y = x W with W[in,
// out]). RoPE halves are stored as they are used.
#pragma once

#include "spec/parameter_list.h"
#include "tensor/tensor_slice.h"

#include <algorithm>
#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace echelon {

/// The bias of the choice of a layer with experts: float32 [experts], which is no parameter, as no gradient trains it.
[[nodiscard]] std::string router_bias_name(std::int64_t layer);
[[nodiscard]] inline bool is_router_bias(std::string_view name) { return name.ends_with(".e_score_correction_bias"); }
/// Of every such layer, in order; empty if the model has none.
[[nodiscard]] std::vector<NamedShape> router_biases(const ModelSpec& model);

/// Where the outputs of a linear layer (rows of its weight, entries of its bias) are among those of a fused tensor:
/// blocks of equal size at equal distances, whose rows may have another order.
struct FusedRows {
  /// `count` rows in a row of a parameter's block: in the tensor from `first` of its block on, `step` apart.
  struct Run {
    std::int64_t count = 0, first = 0, step = 1;
  };
  std::int64_t first = 0, block = 0, stride = 0;  // a block of 0: all rows in one
  std::vector<Run> runs = {};                     // of each block; empty: one run

  /// visit(rows of the parameter, the first of them in the tensor), in order.
  template <class F>
  void for_each_block(Range rows, F&& visit) const {
    if (block == 0) return visit(rows, rows.first + first);
    for (std::int64_t at = rows.first, end = rows.first + rows.count; at < end;) {
      const auto [count, first_of_block] = run_from(at % block);
      const std::int64_t visited = std::min(end - at, count);
      visit(Range{at, visited}, at / block * stride + first + first_of_block);
      at += visited;
    }
  }

 private:
  /// How many rows from row `at` of a block on are adjacent in the tensor, and the first of them there.
  [[nodiscard]] std::pair<std::int64_t, std::int64_t> run_from(std::int64_t at) const {
    for (std::int64_t begin = 0; const Run& run : runs) {
      if (at < begin + run.count)
        return {run.step == 1 ? begin + run.count - at : 1, run.first + (at - begin) * run.step};
      begin += run.count;
    }
    return {block - at, at};
  }
};

/// A parameter's place in a file: a whole tensor or some of its rows.
struct FilePlace {
  std::string tensor;
  Sizes sizes;  // of the whole tensor
  FusedRows rows{};
  bool transposed = false;  // the parameter's element (i, j) is the tensor's (j, i)
};

/// A part of a parameter that is in one tensor of the files.
struct PlacedPart {
  std::string tensor;
  TensorSlice slice;       // of what the tensor holds of the parameter
  std::int64_t first = 0;  // element of the parameter's slice where it starts
};

struct PlacedParameter {
  Sizes sizes;  // of the whole parameter
  // Of a stack of matrices, such as the experts of a layer, that of one matrix: "{}" in the tensor's name is its index.
  FilePlace place;

  /// The tensors that hold it, in order.
  [[nodiscard]] std::vector<std::string> tensors() const;
  /// Where the elements of a slice are.
  [[nodiscard]] std::vector<PlacedPart> parts_of(const TensorSlice& slice) const;
};

/// Every parameter and bias of a choice by name, with its place in a folder of this model. Includes the head of a tied
/// model, at the embedding's place.
[[nodiscard]] std::map<std::string, PlacedParameter, std::less<>> placed_parameters(const ModelSpec& model);

/// The tensors of a folder of this model, in the order of the forward pass.
[[nodiscard]] std::vector<NamedShape> file_tensors(const ModelSpec& model);

}  // namespace echelon
