// Injected faults of context parallelism: of what a rank is given of a sequence, of the blocks of the ring, and of what
// is made of them.
#pragma once

#include "data/batch_source.h"
#include "verify/plants.h"

namespace echelon::testing {

/// Positions count from the start of the rank's own tokens, in layers whose name contains `layer`; learned ones always.
[[nodiscard]] Seed positions_from_own_start(const std::string& layer);

/// What a ring does with the result of a block.
enum class Merging : std::uint8_t { left_out, twice, averaged, added };
/// At hop `hop`; averaged and added: at every hop.
[[nodiscard]] Seed wrong_merge(Merging merging, int hop);

/// Which of the additions of a ring's backward pass in a layer is left out, in the order in which they are done: with
/// several blocks, at each hop from the first on that of dq, and after the first hop those of dk and dv on their way;
/// at the end those of dk and dv that arrived.
[[nodiscard]] Seed missing_additions(std::vector<int> which);
/// The gradients that arrive are left where they are: a rank takes those of the last block that it attended to.
[[nodiscard]] Seed gradients_that_stay_abroad();

/// A ring attends to keys and values (or values alone) of the hop before at hop `hop`, forward or backward.
[[nodiscard]] Seed block_of_hop_before(int hop, bool is_backward, bool values_alone);
/// At hop `hop` with the ranges of the rank's own block.
[[nodiscard]] Seed own_mask(int hop, bool is_backward);

/// Documents after the first start `by` positions later. `config` and `batches` are those of the run.
[[nodiscard]] Seed moved_documents_by(const RunConfig& config, const BatchSource& batches, int by);
/// Queries that see the last token of a block see the row after it, too, if there is one.
[[nodiscard]] Seed visible_padding();
/// The target of the last token of each chunk is ignored.
[[nodiscard]] Seed lost_targets();
/// The target of a token is the next token on its rank.
[[nodiscard]] Seed own_targets();
/// The ranks with this coordinate on cp have the tokens of the next sequence.
[[nodiscard]] Seed other_sequence_on(int cp_coordinate);

/// Each rank divides by its own number of targets: in the loss, or its whole gradient.
[[nodiscard]] Seed mean_over_own_targets(bool in_loss);
/// Gradients are summed over dp_shard alone, not over cp.
[[nodiscard]] Seed sum_over_samples_alone();
/// The report adds the loss of no other rank.
[[nodiscard]] Seed own_loss();
/// The gradient of every rank is multiplied by cp.
[[nodiscard]] Seed loss_times_cp();

}  // namespace echelon::testing
