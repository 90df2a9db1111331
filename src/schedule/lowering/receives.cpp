#include "schedule/lowering/receives.h"

#include "schedule/simulation/simulate_schedule.h"

#include <algorithm>
#include <tuple>

namespace echelon {
namespace {

struct Message {
  double produced = 0;
  int source = 0;
  Action receive;
};

/// What other ranks send to each rank.
std::vector<std::vector<Message>> messages_to_ranks(const Schedule& schedule, const Timeline& timeline) {
  std::vector<std::vector<Message>> messages(schedule.ranks.size());
  for (const Event& event : timeline.events) {
    const Action& writer = schedule.ranks[event.rank][event.action_id];
    if (writer.kind == ActionKind::backward_weight) continue;
    const bool is_forward = writer.kind == ActionKind::forward;
    const int stage = writer.stage + (is_forward ? 1 : -1);  // where it is received
    if (stage < 0 || stage >= schedule.num_stages || schedule.rank_of_stage[stage] == event.rank) continue;
    const ActionKind kind = is_forward ? ActionKind::receive_forward : ActionKind::receive_backward;
    messages[schedule.rank_of_stage[stage]].push_back(
        {event.end, event.rank, {.kind = kind, .stage = stage, .microbatch = writer.microbatch}});
  }
  for (std::vector<Message>& received : messages)
    std::stable_sort(received.begin(), received.end(), [](const Message& a, const Message& b) {
      return std::tie(a.produced, a.source) < std::tie(b.produced, b.source);
    });
  return messages;
}

}  // namespace

std::vector<std::vector<Program>> receives_to_post(const Schedule& schedule) {
  const Timeline timeline = simulate_schedule(schedule, {});
  std::vector<std::vector<double>> ends(schedule.ranks.size());
  for (const Event& event : timeline.events) ends[event.rank].push_back(event.end);

  const auto messages = messages_to_ranks(schedule, timeline);
  std::vector<std::vector<Program>> posted(schedule.ranks.size());
  for (std::size_t rank = 0; rank < ends.size(); ++rank) {
    posted[rank].resize(ends[rank].size());
    std::size_t computed = 0;  // what the rank computes when the message is produced
    for (const Message& message : messages[rank]) {
      while (computed + 1 < ends[rank].size() && ends[rank][computed] <= message.produced) ++computed;
      posted[rank][computed > 0 ? computed - 1 : 0].push_back(message.receive);
    }
  }
  return posted;
}

}  // namespace echelon
