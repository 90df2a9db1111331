#include "base/lending.h"

#include <algorithm>

namespace echelon {

Lending::Lending(int num_members, Sleepers& sleepers)
    : sleepers_(sleepers), is_open_(static_cast<std::size_t>(num_members)) {
  for (int member = 0; member < num_members; ++member)
    teams_.push_back(std::make_unique<Team>(1, Team::Place{this, member}));
}

Lending::Membership::Membership(Lending& lending, int member)
    : before_(Team::adopt(lending.teams_[static_cast<std::size_t>(member)].get())) {}

Lending::Membership::~Membership() { Team::adopt(before_); }

bool Lending::help() {
  if (with_shares() == nullptr) return false;
  std::atomic<bool> has_helped = false;
  auto help_with_one = [&](int) {
    Team* const team = with_shares();
    if (team != nullptr && team->help()) has_helped.store(true, std::memory_order_relaxed);
  };
  Team& own = Team::of_this_thread(1);
  own.run_alone(own.num_threads(), help_with_one);
  return has_helped;
}

Team* Lending::with_shares() const {
  if (num_open_.load() == 0) return nullptr;
  for (std::size_t member = 0; member < teams_.size(); ++member)
    if (is_open_[member].load(std::memory_order_relaxed) && teams_[member]->has_shares()) return teams_[member].get();
  return nullptr;
}

void Lending::open(const Team& team, int num_shares) {
  is_open_[static_cast<std::size_t>(team.place_.member)].store(true, std::memory_order_relaxed);
  num_open_.fetch_add(1);
  const int num_missing =
      (num_shares + team.num_threads() - 1) / team.num_threads() - 1 - num_awake_.load(std::memory_order_relaxed);
  const int num_idle = num_missing > 0 ? sleepers_.num_idle() : 0;
  if (num_idle > 0) sleepers_.wake_idle(std::min(num_missing, num_idle));
}

void Lending::close(const Team& team) {
  is_open_[static_cast<std::size_t>(team.place_.member)].store(false, std::memory_order_relaxed);
  num_open_.fetch_sub(1, std::memory_order_relaxed);
}

}  // namespace echelon
