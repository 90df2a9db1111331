// Small models of the protocols of comm/thread, with the orders of comm/thread/orders.h, on a machine with weak memory
// that tries everything it may do: no thread reads what it should not, and none waits for ever. With an order that is
// weaker, one does.
#include "comm/rendezvous_model.h"
#include "comm/thread/exchange.h"

#include <gtest/gtest.h>

namespace echelon::weak {
namespace {

/// Two threads claim the two chunks of an exchange; the first of them was the last to arrive.
Outcome explore_chunks(const Orders& orders) {
  return explore([&](Machine& machine) {
    const Atomic word = machine.atomic(0), next_chunk = machine.atomic(0), num_done = machine.atomic(0);
    const std::vector<Plain> in = {machine.plain(), machine.plain()}, out = {machine.plain(), machine.plain()};
    const auto work = [=, o = orders](Thread& self) -> Task {
      if (self.index() == 0) {
        for (const Plain p : in) self.write(p, 1);
        co_await self.set_bits(word, ready_bit, o.set_word);
      }
      co_await self.await_bits(word, ready_bit, o.see_word);
      for (;;) {
        const auto chunk = static_cast<std::size_t>(co_await self.add(next_chunk, 1, Order::relaxed));
        if (chunk >= in.size()) break;
        self.write(out[chunk], self.read(in[chunk]) + 1);
        const int num_before = co_await self.add(num_done, 1, o.finish_chunk);
        if (num_before + 1 == 2) co_await self.set_bits(word, done_bit, o.set_word);
      }
      co_await self.await_bits(word, done_bit, o.see_word);
      for (const Plain p : out) self.expect(self.read(p) == 2, "a result is not that of its chunk");
      co_return 0;
    };
    machine.add_thread(work);
    machine.add_thread(work);
  });
}

/// A party goes to sleep while the other one announces the results.
Outcome explore_sleep(const Orders& orders) {
  return explore([&](Machine& machine) {
    const Atomic word = machine.atomic(0), num_sleepers = machine.atomic(0), is_woken = machine.atomic(0);
    const Plain permit = machine.plain();
    machine.add_thread([=, o = orders](Thread& self) -> Task {
      co_await self.set_bits(word, done_bit, o.set_word);
      const int seen = co_await self.load(num_sleepers, o.see_sleepers);
      if (seen == 0) co_return 0;
      self.write(permit, 1);
      co_await self.store(is_woken, 1, o.wake);
      co_return 0;
    });
    machine.add_thread([=, o = orders](Thread& self) -> Task {
      co_await self.add(num_sleepers, 1, o.count_sleeper);
      const int seen = co_await self.load(word, o.see_word_before_sleep);
      if (seen != 0) co_return 0;
      co_await self.await_bits(is_woken, 1, o.wake_up);
      self.expect(self.read(permit) == 1, "a rank wakes without the permit that it was given");
      co_return 0;
    });
  });
}

/// A thread works with the buffers of two ranks. One of them aborts the world, the other one sees that, and both leave.
Outcome explore_abort(const Orders& orders) {
  return explore([&](Machine& machine) {
    const Atomic is_aborted = machine.atomic(0), is_idle = machine.atomic(1);  // the opposite of num_busy_
    const Plain of_aborter = machine.plain(), of_witness = machine.plain();
    machine.add_thread([=, o = orders](Thread& self) -> Task {
      co_await self.add(is_idle, -1, o.become_busy);
      const int seen = co_await self.load(is_aborted, o.see_abort);
      if (seen == 0)
        for (const Plain p : {of_aborter, of_witness}) self.write(p, 1);
      co_await self.add(is_idle, 1, o.end_busy);
      co_return 0;
    });
    machine.add_thread([=, o = orders](Thread& self) -> Task {
      co_await self.store(is_aborted, 1, o.abort);
      co_await self.await_bits(is_idle, 1, o.see_busy);
      self.write(of_aborter, 2);
      co_return 0;
    });
    machine.add_thread([=, o = orders](Thread& self) -> Task {
      const int seen = co_await self.load(is_aborted, o.see_abort);
      if (seen == 0) co_return 0;
      co_await self.await_bits(is_idle, 1, o.see_busy);
      self.write(of_witness, 2);
      co_return 0;
    });
  });
}

Outcome explore_flights(const Orders& orders) { return explore_rendezvous(orders, {.num_in_flight = 2}); }

// Claim (checks): Thread ranks rely on no more memory order than C++ promises for the orders that
//   their source names.
// Bound: models of two and three ranks: every interleaving, every value that a load may return;
//   each order made weaker is found.
// Tests: RendezvousModel
TEST(RendezvousModel, EveryInterleavingReadsWhatItShould) {
  for (const Operations& operations : {Operations{2, 2, 1}, {2, 2, 2}, {3, 1, 1}})
    EXPECT_EQ(explore_rendezvous({}, operations).fault, "") << operations.num_parties;
  for (const auto explore : {explore_spare, explore_chunks, explore_sleep, explore_abort})
    EXPECT_EQ(explore({}).fault, "");
}

struct WeakerOrder {
  const char* name;
  Order Orders::*order;
  Order weaker;
  Outcome (*explore)(const Orders&);
};

TEST(RendezvousModel, AnyWeakerOrderIsAFault) {
  for (const WeakerOrder& w : {WeakerOrder{"append", &Orders::append, Order::relaxed, explore_flights},
                               {"find_next", &Orders::find_next, Order::relaxed, explore_flights},
                               {"release_exchange", &Orders::release_exchange, Order::acquire, explore_flights},
                               {"release_exchange", &Orders::release_exchange, Order::release, explore_flights},
                               {"put_spare", &Orders::put_spare, Order::acquire, explore_spare},
                               {"put_spare", &Orders::put_spare, Order::release, explore_spare},
                               {"take_spare", &Orders::take_spare, Order::relaxed, explore_spare},
                               {"arrive", &Orders::arrive, Order::acquire, explore_flights},
                               {"arrive", &Orders::arrive, Order::release, explore_flights},
                               {"see_word", &Orders::see_word, Order::relaxed, explore_flights},
                               {"see_word", &Orders::see_word, Order::relaxed, explore_chunks},
                               {"set_word", &Orders::set_word, Order::acquire, explore_flights},
                               {"set_word", &Orders::set_word, Order::acquire, explore_chunks},
                               {"finish_chunk", &Orders::finish_chunk, Order::acquire, explore_chunks},
                               {"finish_chunk", &Orders::finish_chunk, Order::release, explore_chunks},
                               {"set_word", &Orders::set_word, Order::acq_rel, explore_sleep},
                               {"see_sleepers", &Orders::see_sleepers, Order::acquire, explore_sleep},
                               {"count_sleeper", &Orders::count_sleeper, Order::acq_rel, explore_sleep},
                               {"see_word_before_sleep", &Orders::see_word_before_sleep, Order::acquire, explore_sleep},
                               {"wake", &Orders::wake, Order::relaxed, explore_sleep},
                               {"wake_up", &Orders::wake_up, Order::relaxed, explore_sleep},
                               {"become_busy", &Orders::become_busy, Order::acq_rel, explore_abort},
                               {"see_abort", &Orders::see_abort, Order::acquire, explore_abort},
                               {"abort", &Orders::abort, Order::release, explore_abort},
                               {"see_busy", &Orders::see_busy, Order::acquire, explore_abort},
                               {"end_busy", &Orders::end_busy, Order::relaxed, explore_abort}}) {
    Orders orders;
    orders.*w.order = w.weaker;
    EXPECT_NE(w.explore(orders).fault, "") << w.name << " may be " << static_cast<int>(w.weaker);
  }
}

// The machine does what C++ says of the two programs that every model of memory is tried on.
TEST(WeakMemory, MessagesPassWithReleaseAndAcquireOnly) {
  const auto fault_with = [](Order store, Order load) {
    return explore([=](Machine& machine) {
             const Atomic data = machine.atomic(0), flag = machine.atomic(0);
             machine.add_thread([=](Thread& self) -> Task {
               co_await self.store(data, 1, Order::relaxed);
               co_await self.store(flag, 1, store);
               co_return 0;
             });
             machine.add_thread([=](Thread& self) -> Task {
               co_await self.await_bits(flag, 1, load);
               const int seen = co_await self.load(data, Order::relaxed);
               self.expect(seen == 1, "stale");
               co_return 0;
             });
           })
        .fault;
  };
  EXPECT_EQ(fault_with(Order::release, Order::acquire), "");
  EXPECT_EQ(fault_with(Order::relaxed, Order::acquire), "stale");
  EXPECT_EQ(fault_with(Order::release, Order::relaxed), "stale");
}

TEST(WeakMemory, StoresAreBufferedUnlessSequentiallyConsistent) {
  const auto fault_with = [](Order store, Order load) {
    return explore([=](Machine& machine) {
             const std::array<Atomic, 2> flags = {machine.atomic(0), machine.atomic(0)};
             const std::array<Plain, 2> seen = {machine.plain(), machine.plain()};
             const Atomic num_ended = machine.atomic(0);
             for (int i = 0; i < 2; ++i)
               machine.add_thread([=](Thread& self) -> Task {
                 const auto own = static_cast<std::size_t>(self.index());
                 co_await self.store(flags[own], 1, store);
                 const int other = co_await self.load(flags[1 - own], load);
                 self.write(seen[own], other);
                 const int num_before = co_await self.add(num_ended, 1, Order::acq_rel);
                 if (num_before == 1)
                   self.expect(self.read(seen[0]) + self.read(seen[1]) > 0, "neither sees the other");
                 co_return 0;
               });
           })
        .fault;
  };
  EXPECT_EQ(fault_with(Order::seq_cst, Order::seq_cst), "");
  EXPECT_EQ(fault_with(Order::release, Order::acquire), "neither sees the other");
}

}  // namespace
}  // namespace echelon::weak
