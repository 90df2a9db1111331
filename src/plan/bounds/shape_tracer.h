// The passes of the units of one shape, on the rank that has most of the keys. Made once a unit is asked for that is
// not known yet.
#pragma once

#include "blueprint/unit_trace.h"
#include "plan/space/space.h"
#include "predict/documents/document_loads.h"
#include "predict/step/context_rank.h"

#include <optional>
#include <utility>

namespace echelon {

/// What documents leave of a shape's attention.
struct DocumentAttention {
  RunConfig config;
  SoftwareProfile profile;
};

/// What is outside of the shape outlives it.
class ShapeTracer {
 public:
  /// `seq_len`: of each sequence; 0: as the request has it.
  ShapeTracer(const PlanSpace& space, const PlanShape& shape, DocumentLoads* loads, std::int64_t seq_len = 0)
      : space_(space), shape_(shape), loads_(loads), seq_len_(seq_len) {}

  [[nodiscard]] const RunConfig& config() {
    if (!config_) {
      PlanShape alone = shape_;
      alone.dp = shards_of_experts(shape_);
      config_ = space_.config_of({alone, {}, {}, {.shard = alone.dp}});
      if (seq_len_ > 0) config_->training.seq_len = seq_len_;
      rank_ = ContextRanks(*config_).busiest_like(0, config_->mesh_shape());
      units_.emplace(*config_);
    }
    return *config_;
  }
  /// Without their events.
  UnitPasses tell_passes(const UnitKind& kind, const TellPass& told) {
    (void)config();
    return units_->tell_passes(kind, rank_, true, told);
  }
  void tell_first_passes(const UnitKind& kind, const TellPass& told) {
    (void)config();
    units_->tell_first_passes(kind, rank_, told);
  }
  /// Of the units' attention; null if sequences are whole.
  [[nodiscard]] const DocumentAttention* documents() {
    if (loads_ == nullptr) return nullptr;
    if (!documents_) {
      RunConfig config = space_.config_of({shape_, {}, {}, {.replicate = shape_.dp}});
      const SoftwareProfile profile = loads_->profile_of(config);
      documents_ = {std::move(config), profile};
    }
    return &*documents_;
  }

 private:
  const PlanSpace& space_;
  PlanShape shape_;
  DocumentLoads* loads_;
  std::int64_t seq_len_;
  std::optional<RunConfig> config_;
  std::optional<UnitTraces> units_;
  std::optional<DocumentAttention> documents_;
  int rank_ = 0;
};

}  // namespace echelon
