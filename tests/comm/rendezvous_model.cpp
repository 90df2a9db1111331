#include "comm/rendezvous_model.h"

#include "comm/thread/exchange.h"

#include <bit>

namespace echelon::weak {
namespace {

struct ModelOfExchange {
  Atomic next, num_released, num_arrived, word;
  Plain signature;
  std::vector<Plain> in, out;  // by party: a buffer that it gave, at its place in this exchange
};

struct ModelOfRendezvous {
  Orders orders;
  Operations operations;
  std::vector<ModelOfExchange> exchanges;  // the number 0 means none
  Atomic spare, unused;                    // `unused`: a set, under the mutex
};

constexpr Order under_a_mutex = Order::acq_rel;
constexpr int first_exchange = 1, num_exchanges = 4;  // the one before the first operation; all

Task take(Thread& self, const ModelOfRendezvous& m) {
  const int spare = co_await self.swap(m.spare, 0, m.orders.take_spare);
  if (spare != 0) co_return spare;
  const int unused = co_await self.take_lowest_bit(m.unused, under_a_mutex);
  co_return std::countr_zero(static_cast<unsigned>(unused));
}

Task give(Thread& self, const ModelOfRendezvous& m, int exchange) {
  const int other = co_await self.swap(m.spare, exchange, m.orders.put_spare);
  if (other != 0) co_await self.set_bits(m.unused, 1 << other, under_a_mutex);
  co_return 0;
}

Task release(Thread& self, const ModelOfRendezvous& m, int exchange) {
  static_cast<void>(self.read(m.exchanges[exchange].signature));  // the last look at it
  const int before = co_await self.add(m.exchanges[exchange].num_released, 1, m.orders.release_exchange);
  if (before + 1 == m.operations.num_parties) co_await give(self, m, exchange);
  co_return 0;
}

Task after(Thread& self, const ModelOfRendezvous& m, int last, int round) {
  const Atomic link = m.exchanges[last].next;
  int next = co_await self.load(link, m.orders.find_next);
  if (next != 0) co_return next;
  const int first = co_await take(self, m);
  const ModelOfExchange& reset = m.exchanges[first];
  self.write(reset.signature, round);
  for (const Atomic a : {reset.next, reset.num_released, reset.num_arrived, reset.word}) self.store_relaxed(a, 0);
  next = co_await self.compare_swap(link, 0, first, {m.orders.append, m.orders.find_next});
  if (next == 0) co_return first;
  co_await give(self, m, first);
  co_return next;
}

int value_of(int party, int round) { return 10 * round + party; }

/// The last party reads what all have given, and writes their results.
Task arrive(Thread& self, const ModelOfRendezvous& m, const ModelOfExchange& exchange, int round) {
  self.write(exchange.in[self.index()], value_of(self.index(), round));
  const int before = co_await self.add(exchange.num_arrived, 1, m.orders.arrive);
  if (before + 1 < m.operations.num_parties) co_return 0;
  for (int party = 0; party < m.operations.num_parties; ++party) {
    self.expect(self.read(exchange.in[party]) == value_of(party, round), "an exchange reads another value");
    self.write(exchange.out[party], round);
  }
  co_await self.set_bits(exchange.word, done_bit, m.orders.set_word);
  co_return 0;
}

Task party(Thread& self, const ModelOfRendezvous& m) {
  std::vector<int> joined;
  int last = first_exchange;
  bool has_left_last = true;
  for (int round = 1; round <= m.operations.num_rounds + m.operations.num_in_flight - 1; ++round) {
    if (round <= m.operations.num_rounds) {
      const int exchange = co_await after(self, m, last, round);
      if (has_left_last) co_await release(self, m, last);
      last = exchange;
      has_left_last = false;
      joined.push_back(exchange);
      self.expect(self.read(m.exchanges[exchange].signature) == round, "a party joins another operation's exchange");
      co_await arrive(self, m, m.exchanges[exchange], round);
    }
    const int waited = round - m.operations.num_in_flight + 1;
    if (waited < 1) continue;
    const int exchange = joined[waited - 1];
    co_await self.await_bits(m.exchanges[exchange].word, done_bit, m.orders.see_word);
    self.expect(self.read(m.exchanges[exchange].out[self.index()]) == waited, "a party reads another result");
    self.write(m.exchanges[exchange].in[self.index()], 0);  // its buffer is its own again
    if (exchange == last)
      has_left_last = true;
    else
      co_await release(self, m, exchange);
  }
  co_return 0;
}

/// Of two that are put in at the same time, one goes to the others.
Task take_and_give(Thread& self, const ModelOfRendezvous& m) {
  const int exchange = co_await take(self, m);
  self.write(m.exchanges[exchange].signature, 1);
  co_await give(self, m, exchange);
  co_return 0;
}

ModelOfRendezvous placed(Machine& machine, const Orders& orders, const Operations& operations) {
  ModelOfRendezvous m = {.orders = orders, .operations = operations, .exchanges = {}, .spare = {}, .unused = {}};
  m.exchanges.resize(num_exchanges + 1);
  for (int i = first_exchange; i <= num_exchanges; ++i) {
    ModelOfExchange& exchange = m.exchanges[i];
    for (Atomic* a : {&exchange.next, &exchange.num_released, &exchange.num_arrived, &exchange.word})
      *a = machine.atomic(0);
    exchange.signature = machine.plain();
    for (int party = 0; party < operations.num_parties; ++party) {
      exchange.in.push_back(machine.plain());
      exchange.out.push_back(machine.plain());
    }
  }
  m.spare = machine.atomic(0);
  m.unused = machine.atomic(((1 << (num_exchanges + 1)) - 1) & ~0b11);
  return m;
}

}  // namespace

Outcome explore_rendezvous(const Orders& orders, const Operations& operations) {
  return explore([&](Machine& machine) {
    const auto m = std::make_shared<const ModelOfRendezvous>(placed(machine, orders, operations));
    for (int i = 0; i < operations.num_parties; ++i) machine.add_thread([m](Thread& self) { return party(self, *m); });
  });
}

Outcome explore_spare(const Orders& orders) {
  return explore([&](Machine& machine) {
    const auto m = std::make_shared<const ModelOfRendezvous>(placed(machine, orders, {}));
    for (int i = 0; i < 3; ++i) machine.add_thread([m](Thread& self) { return take_and_give(self, *m); });
  });
}

}  // namespace echelon::weak
