#include "comm/thread/rendezvous.h"

#include "comm/thread/world.h"

namespace echelon {

Rendezvous::Rendezvous(ThreadWorld& world, std::string group_name, std::vector<int> ranks)
    : world_(world), group_name_(std::move(group_name)), ranks_(std::move(ranks)), num_started_(ranks_.size()) {}

Exchange& Rendezvous::join(int party, const Signature& signature, Contribution contribution) {
  std::unique_lock lock(mutex_);
  Exchange& exchange = next_of(party, signature);
  if (exchange.signature() != signature) {
    const std::string mismatch = describe_mismatch(party, signature, exchange);
    lock.unlock();
    world_.abort(mismatch);
    throw Failure(mismatch);
  }
  exchange.party(party) = contribution;
  exchange.party(party).has_arrived = true;
  const bool is_last = ++exchange.num_arrived == static_cast<int>(ranks_.size());
  if (is_last) {  // nobody overtakes within a party, so the operations become complete in order
    incomplete_.pop_front();
    ++num_complete_;
  }
  lock.unlock();
  if (is_last) exchange.open();
  return exchange;
}

Exchange& Rendezvous::next_of(int party, const Signature& signature) {
  const auto place = static_cast<std::size_t>(num_started_[static_cast<std::size_t>(party)]++ - num_complete_);
  if (place < incomplete_.size()) return *incomplete_[place];
  if (unused_.empty()) {
    exchanges_.push_back(std::make_unique<Exchange>(world_, static_cast<int>(ranks_.size())));
    unused_.push_back(exchanges_.back().get());
  }
  incomplete_.push_back(unused_.back());
  unused_.pop_back();
  incomplete_.back()->reset(signature);
  return *incomplete_.back();
}

void Rendezvous::leave(Exchange& exchange) {
  if (exchange.num_left.fetch_add(1) + 1 < static_cast<int>(ranks_.size())) return;
  const std::lock_guard lock(mutex_);
  unused_.push_back(&exchange);
}

std::string Rendezvous::describe_timeout(int party, Exchange& exchange, double seconds) {
  const std::lock_guard lock(mutex_);
  std::vector<int> late;
  for (std::size_t i = 0; i < ranks_.size(); ++i)
    if (!exchange.party(static_cast<int>(i)).has_arrived) late.push_back(ranks_[i]);
  const std::string culprits =
      late.empty() ? "all ranks have arrived but have not finished" : listed(late) + (late.size() == 1 ? " has" : " have") + " not arrived";
  return fmt::format("{}: rank {} waited {} s (comm.timeout_seconds) for {}; {}", name(), ranks_[static_cast<std::size_t>(party)], seconds,
                     describe(party, exchange.signature()), culprits);
}

std::string Rendezvous::describe_mismatch(int party, const Signature& signature, Exchange& exchange) const {
  int other = 0;
  while (!exchange.party(other).has_arrived) ++other;
  return fmt::format("{}: as operation {}, rank {} started {} but rank {} started {}", name(), num_started_[static_cast<std::size_t>(party)],
                     ranks_[static_cast<std::size_t>(party)], describe(party, signature), ranks_[static_cast<std::size_t>(other)],
                     describe(other, exchange.signature()));
}

std::string Rendezvous::describe(int party, const Signature& signature) const {
  if (signature.kind != CommKind::send) return to_string(signature);
  return party == 0 ? fmt::format("send of {} {} to rank {}", signature.num_elements, name_of(signature.dtype), ranks_[1])
                    : fmt::format("receive of {} {} from rank {}", signature.num_elements, name_of(signature.dtype), ranks_[0]);
}

std::string Rendezvous::name() const { return fmt::format("group {} ({})", group_name_, listed(ranks_)); }

}  // namespace echelon
