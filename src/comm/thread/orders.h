// The orders of the atomic operations of thread ranks, in pairs: what the first thread did before its operation, the
// second one sees after its own. Each of them is needed. The models of tests/comm/rendezvous_model_test.cpp run with
// these constants on a machine with weak memory, and a weaker one is a fault.
//
// Operations without a constant of this file are relaxed, and say why that is enough, or are of code under a mutex.
#pragma once

#include <atomic>

namespace echelon::order {

// Exchange::next. The party that appends an exchange has reset it; parties that find it read its signature and arrive.
inline constexpr auto append = std::memory_order_release, find_next = std::memory_order_acquire;

// Exchange::num_released. The last party passes the exchange on to its next use, after all others' last look at it.
inline constexpr auto release_exchange = std::memory_order_acq_rel;

// Rendezvous::spare_. Who takes an exchange out resets it, after everything that was done with it before it was put in.
// Who puts one in may get another out, and passes that on.
inline constexpr auto put_spare = std::memory_order_acq_rel, take_spare = std::memory_order_acquire;

// Exchange::num_arrived_. Every party has written its buffers and where they are; the last one reads all of that.
inline constexpr auto arrive = std::memory_order_acq_rel;

// Exchange::num_done_chunks_. Every chunk was written by the thread that claimed it; who counts the last one announces
// all of them. (Claims, of Exchange::next_chunk_, are relaxed: what a chunk reads came with the word.)
inline constexpr auto finish_chunk = std::memory_order_acq_rel;

// Exchange::word_. Who sets a bit has seen all arrivals or all chunks; who sees the bit reads buffers or results.
inline constexpr auto see_word = std::memory_order_acquire;
// The word and RankQueue::size_, crosswise: one thread sets a bit and then looks for sleepers, the other counts itself
// as a sleeper and then looks at the word. One of the two must see the other, or the sleeper is never woken. Only a
// single order of all four operations promises that.
inline constexpr auto set_word = std::memory_order_seq_cst, see_sleepers = std::memory_order_seq_cst;
inline constexpr auto count_sleeper = std::memory_order_seq_cst, see_word_before_sleep = std::memory_order_seq_cst;

// Exchange::num_busy_ and ThreadWorld::is_aborted_, crosswise. A thread counts itself as busy and then looks whether
// the world was aborted. A rank that leaves has aborted it, or seen that it was, and then waits until no thread is
// busy. If neither saw the other, a thread would use buffers that are gone.
inline constexpr auto become_busy = std::memory_order_seq_cst, see_abort = std::memory_order_seq_cst;
inline constexpr auto abort = std::memory_order_seq_cst, see_busy = std::memory_order_seq_cst;
// The leaving rank frees its buffers after the thread's last access to them.
inline constexpr auto end_busy = std::memory_order_release;

// Permits::RankSlot::is_woken. Who wakes a rank has written the permit and the core that it gets; the rank reads them.
inline constexpr auto wake = std::memory_order_release, wake_up = std::memory_order_acquire;

}  // namespace echelon::order
