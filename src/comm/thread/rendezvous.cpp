#include "comm/thread/rendezvous.h"

#include "comm/thread/world.h"

namespace echelon {

Rendezvous::Rendezvous(ThreadWorld& world, std::string group_name, std::vector<int> ranks,
                       DeviceTransport::MakeDeviceExchange make_device_exchange)
    : world_(world),
      group_name_(std::move(group_name)),
      ranks_(std::move(ranks)),
      make_device_exchange_(make_device_exchange),
      cursors_(ranks_.size()) {
  Exchange* const before_the_first = take();
  for (Cursor& cursor : cursors_) cursor.last = before_the_first;
}

Exchange& Rendezvous::join(int party, const Signature& signature, const PartyBuffers& buffers,
                           DeviceTransport* transport) {
  Cursor& cursor = cursors_[static_cast<std::size_t>(party)];
  Exchange& last = *cursor.last;
  Exchange& exchange = after(last, signature, party);
  if (cursor.has_left_last) release(last);
  cursor = {.last = &exchange, .has_left_last = false, .num_started = cursor.num_started + 1};
  if (exchange.signature() != signature) {
    const std::string mismatch = describe_mismatch(party, signature, exchange);
    world_.abort(mismatch);
    throw Failure(mismatch);
  }
  exchange.arrive(party, buffers, transport);
  return exchange;
}

void Rendezvous::leave(int party, Exchange& exchange) {
  Cursor& cursor = cursors_[static_cast<std::size_t>(party)];
  if (cursor.last == &exchange)
    cursor.has_left_last = true;  // its `next` is still to be read
  else
    release(exchange);
}

Exchange& Rendezvous::after(Exchange& last, const Signature& signature, int party) {
  Exchange* next = last.next.load(order::find_next);
  if (next != nullptr) return *next;
  Exchange* const first = take();
  first->reset(signature, party);
  if (last.next.compare_exchange_strong(next, first, order::append, order::find_next)) return *first;
  give(first);  // another party was faster
  return *next;
}

Exchange* Rendezvous::take() {
  if (Exchange* const spare = spare_.exchange(nullptr, order::take_spare)) return spare;
  const std::lock_guard lock(mutex_);
  if (unused_.empty()) {
    exchanges_.push_back(std::make_unique<Exchange>(world_, static_cast<int>(ranks_.size()), make_device_exchange_));
    return exchanges_.back().get();
  }
  Exchange* const exchange = unused_.back();
  unused_.pop_back();
  return exchange;
}

void Rendezvous::give(Exchange* exchange) {
  Exchange* const other = spare_.exchange(exchange, order::put_spare);
  if (other == nullptr) return;
  const std::lock_guard lock(mutex_);
  unused_.push_back(other);
}

void Rendezvous::release(Exchange& exchange) {
  const int num_released = exchange.num_released.fetch_add(1, order::release_exchange) + 1;
  if (num_released == static_cast<int>(ranks_.size())) give(&exchange);
}

std::string Rendezvous::describe_timeout(int party, const Exchange& exchange, double seconds) const {
  std::vector<int> late;
  for (std::size_t i = 0; i < ranks_.size(); ++i)
    if (!exchange.has_arrived(static_cast<int>(i))) late.push_back(ranks_[i]);
  const std::string culprits = late.empty() ? "all ranks have arrived but have not finished"
                                            : listed(late) + (late.size() == 1 ? " has" : " have") + " not arrived";
  return fmt::format("{}: rank {} waited {} s (comm.timeout_seconds) for {}; {}", name(),
                     ranks_[static_cast<std::size_t>(party)], seconds, describe(party, exchange.signature()), culprits);
}

std::string Rendezvous::describe_mismatch(int party, const Signature& signature, const Exchange& exchange) const {
  const int other = exchange.first_party();
  return fmt::format("{}: as operation {}, rank {} started {} but rank {} started {}", name(),
                     cursors_[static_cast<std::size_t>(party)].num_started, ranks_[static_cast<std::size_t>(party)],
                     describe(party, signature), ranks_[static_cast<std::size_t>(other)],
                     describe(other, exchange.signature()));
}

std::string Rendezvous::describe(int party, const Signature& signature) const {
  if (signature.kind != CommKind::send) return to_string(signature);
  return party == 0
             ? fmt::format("send of {} {} to rank {}", signature.num_elements, name_of(signature.dtype), ranks_[1])
             : fmt::format("receive of {} {} from rank {}", signature.num_elements, name_of(signature.dtype),
                           ranks_[0]);
}

std::string Rendezvous::name() const { return fmt::format("group {} ({})", group_name_, listed(ranks_)); }

}  // namespace echelon
